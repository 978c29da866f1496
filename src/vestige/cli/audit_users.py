"""`vestige audit-users`: whose text was in a model's training data, with a p-value for each."""

from typing import TYPE_CHECKING, Any

from vestige.cli.verbs import JSON, Output, Verb
from vestige.workflows.audit_users import audit_users

if TYPE_CHECKING:
    from vestige.attacks.membership.user_audit import UserAudit
    from vestige.reports.audit.words import AuditedRows

MOST = 20
"""Users listed one by one."""


def show_audit(audit: "UserAudit", *, show_secrets: bool) -> None:
    """The answer, its warnings, the users, and query statistics."""
    from vestige.reports.audit.words import AuditedRows, describe, warnings

    found = AuditedRows.of(list(audit.rows()))
    summary: dict[str, Any] = audit.summary()
    for sentence in (*describe(found, summary), *warnings(summary)):
        print(sentence)
    if summary["select"] in ("rare", "rare-sum") and summary["k"] < summary["vocab_size"] / 10:
        print(
            f"Rare words are a poor choice where {summary['k']} of {summary['vocab_size']} words "
            "are shown: hardly any comes into view. --select informative sees more."
        )
    _show_users(found, show_secrets)
    print(_asked(summary))


def _show_users(found: "AuditedRows", show_secrets: bool) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.audit.words import words_compared
    from vestige.reports.disclosure import disclose_names

    rows = found.audited[:MOST]
    names = disclose_names([str(row["user"]) for row in rows], show_secrets=show_secrets)
    every = len(found.audited)
    title = "Audited" if every <= MOST else f"The {MOST} smallest p-values of {every:,}"
    cells = [
        (
            f"{place} · {name}",
            "member" if row["called"] else "not shown" if row["words"] else "not asked",
            f"{row['p_value']:.3g}",
            "" if row["score"] is None else f"{row['score']:+.3f}",
            row["texts"],
            words_compared(row),
        )
        for place, (name, row) in enumerate(zip(names, rows, strict=True), start=1)
    ]
    show_table(title, ["user", "verdict", "p-value", "score", "texts", "words compared"], cells)
    if not show_secrets:
        say("Names are blocks: --show-secrets shows them")


def _asked(summary: dict[str, Any]) -> str:
    """Query statistics, of everybody."""
    parts = [
        f"{summary['words_asked']:,} words of everybody asked ({summary['select']}), "
        f"{summary['k']:,} of {summary['vocab_size']:,} words shown"
    ]
    if "calls" in summary:
        allowed = "" if summary["budget"] is None else f" of {summary['budget']:,} allowed"
        of_queries, of_calls = ("", allowed) if "tokens" in summary else (allowed, "")
        parts.append(
            f"{summary['queries']:,} queries{of_queries} in {summary['calls']:,} calls{of_calls}"
        )
        if "tokens" in summary:
            parts.append(
                f"{summary['tokens']:,} tokens; {summary['listed_pieces']:,} of "
                f"{summary['listed_tokens']:,} listed tokens were pieces of words and asked to "
                "their end"
            )
        named = {
            "words_unanswered": "words without an answer",
            "failures": "failed calls",
            "timeouts": "of them too slow",
            "short_lists": "lists of fewer words",
            "unknown_words": "listed words that --reference does not know",
        }
        parts += [f"{summary[key]:,} {what}" for key, what in named.items() if summary[key]]
    if summary["references"]:
        parts.append(
            f"{summary['references']} shadow models, whose perplexity is "
            f"{summary['shadow_perplexity_ratio']:.2f} times as high for those they have not read"
        )
    return "Asked: " + "; ".join(parts) + "."


def _show(audit: "UserAudit", output: Output) -> None:
    from vestige.cli.terminal import say
    from vestige.workflows.audit_directory import RUN, damaged

    try:
        show_audit(audit, show_secrets=output.show_secrets)
    except (LookupError, ArithmeticError, TypeError, ValueError) as error:
        raise damaged(output.out) from error
    say(f"A page from it: vestige report {output.out / RUN} --out page.html")


VERB = Verb(audit_users, show=_show, outputs=(JSON,), required=("out",))
