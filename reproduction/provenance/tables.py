"""Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513: Tables 1 to 3 and 5, Figures 2 to 8, its numbers beside ours.

Differs from the paper: corpora are what can be had (Reddit's college comments, SATED's development
and test parts, the first films of Cornell's), users fewer, and all have as many texts; our audit
stands beside the paper's, intervals beside both, and the ratio of perplexities out over in beside
every AUC, since a target that overfits more is easier. Figure 7 keeps the target's dropout.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path

from reproduction.papers import Plan, Row, paper_numbers, table
from reproduction.provenance.audit_rows import METHODS, audit_row
from reproduction.provenance.audit_studies import Selection, by_noise, by_obfuscation, by_queries
from reproduction.provenance.audit_trials import Audit, AuditTrial
from reproduction.provenance.memory_rows import memory_rows
from reproduction.provenance.null_audits import NullAudits, null_rows, null_trials
from reproduction.provenance.obfuscation import obfuscation
from reproduction.provenance.private_audits import PrivateTraining, private_ranks, private_rows
from vestige.data.encoded import encode, sources_of
from vestige.metrics.estimates import columns
from vestige.models.checkpoints import load_seq2seq
from vestige.training.evaluate import bleu
from vestige.training.shadows import train_shadow

WHOLE = 10**9
"""The whole vocabulary, whatever its size."""

declared = partial(table, "provenance", section="", folder="trials")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What is computed, at one scale.

    Attributes:
        targets: the audits of Table 1; the first one stands for Reddit where the paper takes
            Reddit alone.
        crossed: the same with shadows of another domain.
        others: the same with shadows of other shapes.
        crowds: audits of more and more users, 20 comments each.
        shown: output sizes.
        queries: numbers of texts that are asked.
        calls: numbers of single words that are.
        noise: shares of a member's texts that were not learnt.
        obfuscations: of "none", "apertium", "synonyms" and "reversed", which is for tests.
        null: audits of people who were never in, of one corpus each.
        private: DP-FedAvg on the last of the crowds.
        ablated: ways in which hidden units are silenced.
    """

    targets: tuple[Audit, ...]
    crossed: tuple[Audit, ...]
    others: tuple[Audit, ...]
    crowds: tuple[Audit, ...]
    shown: tuple[int, ...]
    queries: tuple[int, ...]
    calls: tuple[int, ...]
    noise: tuple[float, ...]
    obfuscations: tuple[str, ...]
    null: tuple[NullAudits, ...]
    private: PrivateTraining
    ablated: int = 5


@cache
def trial_of(audit: Audit, directory: Path, data: Path | None) -> AuditTrial:
    """The trial of an audit; its texts are read once for all tables."""
    return AuditTrial(audit, directory, data)


def audits_plan(
    audits: Iterable[Audit],
    directory: Path,
    data: Path | None,
    rows: Callable[[Audit, AuditTrial], Iterable[Row]],
) -> Plan:
    """Train the targets and shadows of some audits, then give the rows of each."""
    trials = {audit: trial_of(audit, directory, data) for audit in audits}
    return Plan(
        shadows=[job for trial in trials.values() for job in trial.jobs],
        rows=lambda: (row for audit, trial in trials.items() for row in rows(audit, trial)),
    )


@declared("table1")
def table1(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Word accuracy and perplexity of the targets."""
    paper = paper_numbers("provenance", "table1", key=1)
    absent = dict.fromkeys(next(iter(paper.values())))

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        target = train_shadow(trial.target)
        yield {
            "dataset": audit.name,
            "users": len(target.members),
            "accuracy_in": target.inside.accuracy,
            "accuracy_out": target.outside.accuracy,
            "perplexity_in": target.inside.perplexity,
            "perplexity_out": target.outside.perplexity,
            "ratio": target.outside.perplexity / target.inside.perplexity,
            **paper.get((audit.text.dataset,), absent),
            **_bleu(trial),
        }

    return audits_plan(scale.targets, directory, data, rows)


@declared("audit")
def whole(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Both audits where the whole vocabulary is shown."""

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        for method in METHODS:
            row = audit_row(trial.observe(), method, k=WHOLE, dataset=audit.name)
            yield {**row, "paper_auc": 1.0}

    return audits_plan(scale.targets, directory, data, rows)


@declared("table2")
def table2(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Shadows of other shapes."""
    paper = paper_numbers("provenance", "table2", key=1)

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        for method in METHODS:
            row = audit_row(trial.observe(), method, k=WHOLE, dataset=audit.name)
            yield {**row, "paper_auc": paper.get((audit.text.dataset,), {}).get("paper_auc")}

    return audits_plan(scale.others, directory, data, rows)


@declared("table3")
def table3(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Output sizes, shadows of the same and of another domain."""
    paper = paper_numbers("provenance", "table3", key=3)

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        domain, observed = "same" if audit.domain is None else "cross", trial.observe()
        for k, method in product(scale.shown, METHODS):
            row = audit_row(observed, method, k=k, dataset=audit.name, domain=domain)
            known = paper.get((audit.text.dataset, k, domain), {})
            yield {**row, "paper_auc": known.get("paper_auc")}

    return audits_plan((*scale.targets, *scale.crossed), directory, data, rows)


@declared("figure2")
def figure2(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """More and more users."""

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        observed = trial.observe()
        for k, method in product((WHOLE, 50), METHODS):
            yield dict(audit_row(observed, method, k=k, users=len(observed.members)))

    return audits_plan(scale.crowds, directory, data, rows)


@declared("figure3")
def figure3(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Numbers of queries, and how they are chosen."""
    texts: tuple[Selection, ...] = ("rare-sum", "rare", "random")
    words: tuple[Selection, ...] = ("rare", "informative", "random")
    first = {audit.text.dataset: audit for audit in reversed(scale.targets)}

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        queries = [few for few in scale.queries if few <= audit.text.each]
        ask = partial(by_queries, trial.observe(), dataset=audit.name)
        yield from ask(queries, k=WHOLE, how=texts)
        yield from ask(queries, k=50, how=(*texts, "informative"))
        yield from ask(scale.calls, k=WHOLE, how=("rare",), single=True)
        yield from ask(scale.calls, k=50, how=words, single=True)

    return audits_plan(reversed(first.values()), directory, data, rows)


@declared("figure4")
def figure4(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Texts that were not learnt among a member's."""

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        return by_noise(trial, scale.noise, k=WHOLE, dataset=audit.name)

    return audits_plan(scale.targets[:1], directory, data, rows)


@declared("table5")
def table5(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Texts that were changed."""
    paper = paper_numbers("provenance", "table5", key=1)

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        ways = {name: obfuscation(name) for name in scale.obfuscations}
        for row in by_obfuscation(trial, ways, k=WHOLE, dataset=audit.name):
            known = paper.get((row["obfuscation"],), {})
            yield {**row, "paper_auc": known.get("paper_auc")}

    return audits_plan(scale.targets[:1], directory, data, rows)


@declared("null")
def null(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """P-values of people who were never in."""
    trials = null_trials(scale.null, directory, data)
    return Plan(
        trials=[trial for repeated in trials.values() for trial in repeated],
        rows=partial(null_rows, trials),
    )


@declared("private")
def private(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """DP-FedAvg beside a plain training."""

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        return private_rows(trial, scale.private, k=(WHOLE, 500, 50), dataset=audit.name)

    return audits_plan(scale.crowds[-1:], directory, data, rows)


@declared("figure8")
def figure8(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Predicted ranks of words under both."""

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        return private_ranks(trial, scale.private, bins=10, dataset=audit.name)

    return audits_plan(scale.crowds[-1:], directory, data, rows)


@declared("figures5-7")
def memory(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Where the memory sits."""

    def rows(audit: Audit, trial: AuditTrial) -> Iterator[Row]:
        return memory_rows(trial, orders=scale.ablated, dataset=audit.name)

    return audits_plan(scale.targets, directory, data, rows)


def _bleu(trial: AuditTrial) -> dict[str, float | None]:
    """BLEU of the target's translations of text that it has not learnt; nothing for other tasks."""
    if trial.audit.text.task != "translation":
        return {}
    _, others = trial.target.parts()
    model = load_seq2seq(train_shadow(trial.target).directory / "model")
    found = bleu(model, encode(sources_of(others), model.source_vocabulary), list(others), seed=0)
    return dict(columns("bleu_out", found.score))
