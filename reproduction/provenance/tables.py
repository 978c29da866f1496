"""Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513: Tables 1 to 3 and 5, Figures 2 to 8, its numbers beside ours.

Differs from the paper: corpora are those available (Reddit's college comments, SATED's development
and test parts, the first films of Cornell's), users fewer, and all have equally many texts; our
audit is compared with the paper's, with intervals for both; every AUC has the ratio of perplexities
out over in, since a target that overfits more is easier. Back-translation is Apertium's, to Spanish
and back; synonyms are WordNet's. Figure 7 keeps the target's dropout; the paper trains others
without it.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product

import pandas as pd  # type: ignore[import-untyped]

from reproduction.papers import Row, paper_numbers, table
from reproduction.provenance.audited_texts import documents_by
from reproduction.provenance.audits import Audit, AuditTrial, Observations, perplexity_ratio
from reproduction.provenance.nulls import NullAudits, null_audit, null_row
from reproduction.provenance.obfuscation import obfuscation
from reproduction.provenance.private import (
    PrivateTraining,
    frequency_ranks,
    private_target,
    rank_rows,
)
from reproduction.provenance.queries import Selection, query_mask, with_noise
from reproduction.provenance.scoring import METHODS, audit_row
from reproduction.stages import Work
from vestige.audits.anatomy.anatomy import anatomy
from vestige.data.encoded import encode, sources_of
from vestige.metrics.estimates import columns
from vestige.training.evaluate import bleu
from vestige.training.shadows import Shadow

Audits = tuple[Audit, ...]
Counts = tuple[int, ...]

ALL_WORDS = 10**9
"""Words shown: the whole vocabulary, whatever its size."""
BY_TEXTS: tuple[Selection, ...] = ("rare-sum", "rare", "random")
BY_WORDS: tuple[Selection, ...] = ("rare", "informative", "random")
FREQUENCY_BINS = 10
MEMORY = {
    ("means", "log_prob"),
    ("means", "share"),
    ("ranks", "rank"),
    ("ablation", "kept"),
    ("ablation", "log_rank_lost"),
}
"""The curves of Figures 5 to 7: rows of an anatomy, by figure and measure."""

trial_of = cache(AuditTrial)
"""The trial of an audit; its texts are read once for all tables."""


def audit_rows(
    observed: Observations, k: int = ALL_WORDS, more: Row | None = None, **labels: object
) -> Iterator[Row]:
    """A row per audit method where the target shows k words: labels, results, `more` columns."""
    for method in METHODS:
        yield audit_row(observed, method, k=k, **labels) | (more or {})


@table("provenance", "table1")
def table1(work: Work, targets: Audits) -> Iterator[Row]:
    """Word accuracy and perplexity of the targets."""
    paper = paper_numbers("provenance", "table1", key=1)
    absent = dict.fromkeys(next(iter(paper.values())))
    for audit in targets:
        trial = trial_of(audit, work)
        yield {
            "dataset": audit.name,
            "users": len(trial.texts.members),
            **_scores(trial.target),
            "ratio": perplexity_ratio(trial.target),
            **paper.get((audit.text.dataset,), absent),
            **_bleu(trial),
        }


@table("provenance", "audit")
def whole_vocabulary(work: Work, targets: Audits) -> Iterator[Row]:
    """Both audits where the target shows the whole vocabulary."""
    for audit in targets:
        observed = trial_of(audit, work).observe()
        yield from audit_rows(observed, more={"paper_auc": 1.0}, dataset=audit.name)


@table("provenance", "table2")
def table2(work: Work, others: Audits) -> Iterator[Row]:
    """Shadows of other shapes."""
    for audit in others:
        observed = trial_of(audit, work).observe()
        paper = _paper_auc("table2", audit.text.dataset)
        yield from audit_rows(observed, more=paper, dataset=audit.name)


@table("provenance", "table3")
def table3(work: Work, targets: Audits, crossed: Audits, shown: Counts) -> Iterator[Row]:
    """Output sizes, shadows of the same and of another domain."""
    for audit in (*targets, *crossed):
        domain = "same" if audit.domain is None else "cross"
        observed = trial_of(audit, work).observe()
        for k in shown:
            paper = _paper_auc("table3", audit.text.dataset, k, domain)
            yield from audit_rows(observed, k, more=paper, dataset=audit.name, domain=domain)


@table("provenance", "figure2")
def figure2(work: Work, crowds: Audits) -> Iterator[Row]:
    """Audits of more and more users."""
    for audit in crowds:
        observed = trial_of(audit, work).observe()
        for k in (ALL_WORDS, 50):
            yield from audit_rows(observed, k, users=len(observed.members))


@table("provenance", "figure3")
def figure3(work: Work, targets: Audits, queries: Counts, calls: Counts) -> Iterator[Row]:
    """Numbers of queries, texts or single words, and their selection."""
    first_by_dataset = {audit.text.dataset: audit for audit in reversed(targets)}
    for audit in reversed(first_by_dataset.values()):
        observed = trial_of(audit, work).observe()
        texts = tuple(count for count in queries if count <= audit.text.each)
        panels: tuple[tuple[Counts, int, tuple[Selection, ...], bool], ...] = (
            (texts, ALL_WORDS, BY_TEXTS, False),
            (texts, 50, (*BY_TEXTS, "informative"), False),
            (calls, ALL_WORDS, ("rare",), True),
            (calls, 50, BY_WORDS, True),
        )
        for counts, k, selections, words in panels:
            for selection, count in product(selections, counts):
                mask = query_mask(observed, count, k=k, selection=selection, words=words)
                more = {"selection": selection, "queries": count, "words": words}
                yield from audit_rows(observed.take(mask), k, more, dataset=audit.name)


@table("provenance", "figure4")
def figure4(work: Work, targets: Audits, noise: tuple[float, ...]) -> Iterator[Row]:
    """Noise: texts of members that the target was not trained on."""
    for share, observed in with_noise(trial_of(targets[0], work), noise):
        more = {"noise": share, "members": len(observed.members)}
        yield from audit_rows(observed, more=more, dataset=targets[0].name)


@table("provenance", "table5")
def table5(work: Work, targets: Audits, obfuscations: tuple[str, ...]) -> Iterator[Row]:
    """Changed texts: "none", "apertium", "synonyms", "reversed" (for tests)."""
    for name, change in {name: obfuscation(name) for name in obfuscations}.items():
        observed = trial_of(targets[0], work).observe(change)
        more = {"obfuscation": name, **_paper_auc("table5", name)}
        yield from audit_rows(observed, more=more, dataset=targets[0].name)


@table("provenance", "null")
def null(work: Work, nulls: tuple[NullAudits, ...]) -> Iterator[Row]:
    """P-values of users who were never in: by corpus and query settings, then of all corpora."""
    calls = [(config, null_audit(config, n)) for config in nulls for n in range(config.repetitions)]
    finished = work.all(call for _, call in calls)
    audits = pd.DataFrame(
        {
            "null": nulls.index(config),
            "dataset": config.dataset,
            "known": config.known,
            "shadows": outcome["shadows"],
            "k": outcome["k"],
            "outcome": outcome,
        }
        for (config, _), result in zip(calls, finished, strict=True)
        for outcome in result.value
    )
    settings = ["known", "shadows", "k"]
    for (_, dataset, known, *_), group in audits.groupby(
        ["null", "dataset", *settings], sort=False
    ):
        yield {"dataset": dataset, "known": int(known), **null_row(group.outcome.tolist())}
    for (known, *_), group in audits.groupby(settings, sort=False):
        yield {"dataset": "all", "known": int(known), **null_row(group.outcome.tolist())}


@table("provenance", "private")
def private(work: Work, crowds: Audits, dp_training: PrivateTraining) -> Iterator[Row]:
    """Both audits of a target under DP-FedAvg and of an undefended one with the same members."""
    trial = trial_of(crowds[-1], work)
    for target in (None, private_target(trial, dp_training)):
        observed = trial.observe(target=target)
        guarantee: Row = {"epsilon": None, "delta": None}
        if target is not None:
            epsilon = dp_training.epsilon(len(trial.texts.members))
            guarantee = {"epsilon": epsilon, "delta": dp_training.delta}
        labels = {"dataset": crowds[-1].name, **guarantee, **_scores(observed.target)}
        for k in (ALL_WORDS, 500, 50):
            yield from audit_rows(observed, k, **labels)


@table("provenance", "figure8")
def figure8(work: Work, crowds: Audits, dp_training: PrivateTraining) -> Iterator[Row]:
    """Predicted ranks of words under both."""
    trial = trial_of(crowds[-1], work)
    for model, target in (("plain", None), ("private", private_target(trial, dp_training))):
        observed = trial.observe(target=target)
        for row in rank_rows(observed, frequency_ranks(trial), FREQUENCY_BINS):
            yield {"dataset": crowds[-1].name, "model": model, **row}


@table("provenance", "figures5-7")
def memory(work: Work, targets: Audits, ablated: int) -> Iterator[Row]:
    """Which words and hidden units hold the memory; units are ablated in `ablated` orders."""
    for audit in targets:
        trial = trial_of(audit, work)
        seen, unseen = (
            documents_by(trial.texts.audited, names)
            for names in (trial.texts.members, trial.texts.others)
        )
        for row in anatomy(trial.model(), seen, unseen, orders=ablated).rows:
            if (row["figure"], row["measure"]) in MEMORY:
                yield {"dataset": audit.name, **row}


def _paper_auc(table: str, *key: str | int) -> Row:
    numbers = paper_numbers("provenance", table, key=len(key))
    return {"paper_auc": numbers.get(key, {}).get("paper_auc")}


def _scores(target: Shadow) -> Row:
    return {
        "accuracy_in": target.inside.accuracy,
        "accuracy_out": target.outside.accuracy,
        "perplexity_in": target.inside.perplexity,
        "perplexity_out": target.outside.perplexity,
    }


def _bleu(trial: AuditTrial) -> Row:
    """BLEU of the target's translations of others' text; no columns for other tasks."""
    if trial.audit.text.task != "translation":
        return {}
    _, others = trial.target_job.parts()
    model = trial.model()
    score = bleu(model, encode(sources_of(others), model.source_vocabulary), list(others), seed=0)
    return dict(columns("bleu_out", score.score))
