"""Completion of the user's secrets, which were never planted, from the text before their parts.

The model reads all text before a part that varies and generates the part, by greedy decoding and by
a beam search; earlier parts are as in the secret. Greedy decoding gives one text, whatever the
secret is: for a part drawn uniformly from n texts of its format, a model that never read it gives
the right one with probability 1 / n at most. The number of completed parts is compared with that
(`metrics.tests.at_least`); it takes the role of the controls of planted canaries.

Parts are not independent if they have the same text or the same text before them, since the model
gives one answer to all. They count as one event, whose probability is at most their sum.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from vestige import _validate
from vestige.audits.extraction.continuations import attempts
from vestige.claims import Check, Claim, Estimate, Test, joined, powerful
from vestige.claims.effects import COMPLETED_SHARE
from vestige.claims.secret_checks import Readable, list_checks, open_list, open_secrets
from vestige.data.secret_lines import Secret, SecretList, read_own_secrets
from vestige.metrics.rates import clopper_pearson
from vestige.metrics.tests import at_least
from vestige.models.behind import in_turn
from vestige.models.protocols import NextToken
from vestige.monitor import SILENT, Monitor
from vestige.results import Result
from vestige.session import Session, in_file

LEVEL = 0.05


def complete_own_secrets(run: Session, model: Any, secrets: Any) -> Result:
    """Complete each varying part of the user's secrets: a file with one per line, or texts."""
    question, beam = (run.arguments[name] for name in ("question", "beam"))
    loaded = run.model("model", model)
    run.withhold(what=secrets)
    listed = read_own_secrets(secrets, name="what", monitor=run.monitor)
    asked = loaded if question is None else in_turn(loaded, "assistant", question)
    with run.progress("completing secrets") as step, in_file(secrets):
        return complete_secrets(asked, listed, beam=beam, progress=step, monitor=run.monitor)


def complete_secrets(
    model: NextToken,
    secrets: Sequence[Secret] | SecretList,
    *,
    beam: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    monitor: Monitor = SILENT,
) -> Result:
    """Let the model read the text before each part that varies and see whether it completes it.

    Args:
        model: of next tokens; a secret is read from the beginning of a text.
        secrets: at least one; those that the model cannot read are skipped.
        beam: continuations that are kept, at least 1.
        seed: of the texts with which the model is checked.
        progress: called with (secrets done, all).
        monitor: gets one line about secrets that are skipped.

    Raises:
        ValueError: an argument is out of range.
        DataError: the model can read no secret.
        ModelError: its scores are not finite.
    """
    _validate.at_least(1, beam=beam)
    chosen, about = open_list((model,), secrets, seed=seed, monitor=monitor)
    rows: list[dict[str, Any]] = []
    parts: list[tuple[str, str]] = []  # the text before each part, and its own
    for number, one in enumerate(chosen, start=1):
        for row, part in _completed(model, one, beam):
            rows.append(row)
            parts.append(part)
        if progress:
            progress(number, len(chosen))
    events = joined(*(np.array(labels) for labels in zip(*parts, strict=True))).tolist()
    rows = [{**row, "event": event} for row, event in zip(rows, events, strict=True)]
    return completion_result(rows, beam=beam, **about)


def completion_result(
    rows: Sequence[Mapping[str, Any]],
    *,
    beam: int,
    skipped: int = 0,
    repeated: int = 0,
    checks: tuple[Check, ...],
) -> Result:
    """The table of attempts, one row per part, with summary and claim.

    Columns: phrase, the secret up to the end of the part, of part_tokens tokens after given_tokens;
    greedy, whether greedy decoding gives all of it; beam_place, its position among the beam's
    continuations, or None; log_prob in nats; chance, upper bound of the probability of `greedy` for
    a part that was never read, 1 if its alternatives are only words of a list; event, the same
    number for parts that are not independent.
    """
    chances: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["chance"] < 1:
            chances.setdefault(row["event"], {})[row["phrase"]] = row["chance"]
    bounds = [min(1.0, sum(each.values())) for each in chances.values()]
    happened = {row["event"] for row in rows if row["greedy"] and row["chance"] < 1}
    p, events = at_least(len(happened), bounds), len(bounds)
    needed = next((n for n in range(1, events + 1) if at_least(n, bounds) <= LEVEL), events + 1)
    test = Test(p, at_least(events, bounds), LEVEL, "guesses in the format") if events else None
    completed, number = sum(row["greedy"] for row in rows), len({r["secret_number"] for r in rows})
    words = [row["secret_number"] for row in rows if row["greedy"] and row["chance"] == 1]
    power = powerful(
        test,
        detectable=needed / max(events, 1),
        wanted=ceil(COMPLETED_SHARE * max(events, 1)) / max(events, 1),
        effect="a completed share of {} of the parts",
    )
    share = completed / len(rows), *clopper_pearson(completed, len(rows), confidence=0.95)
    claim = Claim(
        "extract secrets",
        test,
        (
            *checks,
            *list_checks(usable=number, skipped=skipped, repeated=repeated),
            *open_secrets(in_part=(), words=words, known="completed"),
            power,
        ),
        Estimate("share of completed parts", *share),
    )
    parts = "1 part" if len(rows) == 1 else f"{len(rows)} parts"
    return Result(
        kind="SecretCompletion",
        summary={
            **claim.summary(),
            "sentence": f"Greedy decoding completes {completed} of {parts} of secrets verbatim.",
            "parts": len(rows),
            "greedy_completed": completed,
            "beam_kept": sum(row["beam_place"] is not None for row in rows),
            "beam": beam,
            "skipped": skipped,
            "repeated": repeated,
            "p": p,
        },
        rows=tuple(rows),
        claim=claim,
    )


def _completed(
    model: NextToken, one: Readable, beam: int
) -> Iterator[tuple[dict[str, Any], tuple[str, str]]]:
    """Each part's attempt, with the text before the part and its own."""
    secret = one.secret
    for part in secret.parts:
        if part.size == 1:
            continue
        phrase, before = secret.text[: part.end], secret.text[: part.start]
        ids = list(model.vocabulary.encode(phrase))
        given = _shared(ids, list(model.vocabulary.encode(before)))
        [found] = attempts(model, [ids], prefix=given, beam=beam)
        row = {
            "secret_number": secret.number,
            "kind": part.kind,
            "form": one.form,
            "phrase": phrase,
            "part_tokens": len(ids) - given,
            "given_tokens": given,
            **{name: found[name] for name in ("greedy", "beam_place", "log_prob")},
            "chance": 1 / part.size if part.drawn else 1.0,
        }
        yield row, (before, phrase[part.start :])


def _shared(ids: Sequence[int], before: Sequence[int]) -> int:
    """Tokens with which both begin; one of the first is left, since something must follow."""
    pairs = zip(ids[:-1], before, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(ids) - 1, len(before))
    )
