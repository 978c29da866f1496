"""Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513: Tables 1 to 3 and 5, Figures 2 to 8, its numbers beside ours.

Differs from the paper: corpora are what can be had (Reddit's college comments, SATED's development
and test parts, the first films of Cornell's), users fewer, and all have as many texts; our audit
is compared with the paper's, with intervals for both; the ratio of perplexities out over in is
beside every AUC, since a target that overfits more is easier. Back-translation is Apertium's, to
Spanish and back; synonyms are WordNet's. Figure 7 keeps the target's dropout; the paper trains
others without it.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from reproduction.papers import Row, paper_numbers, table
from reproduction.provenance.audited_texts import documents_by
from reproduction.provenance.audits import Audit, AuditTrial, Observations, Target
from reproduction.provenance.nulls import NullAudits, null_audit, null_row
from reproduction.provenance.obfuscation import obfuscation
from reproduction.provenance.private import (
    PrivateTraining,
    frequency_ranks,
    private_target,
    rank_rows,
)
from reproduction.provenance.scoring import METHODS, audit_row
from reproduction.provenance.studies import Selection, chosen_words, with_noise
from reproduction.stages import Work
from vestige.audits.anatomy.anatomy import anatomy
from vestige.data.encoded import encode, sources_of
from vestige.metrics.estimates import columns
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.evaluate import bleu

Audits = tuple[Audit, ...]
Counts = tuple[int, ...]

WHOLE = 10**9
"""The whole vocabulary, whatever its size."""
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
"""What is drawn in Figures 5 to 7: rows of an anatomy, by figure and measure."""

trial_of = cache(AuditTrial)
"""The trial of an audit; its texts are read once for all tables."""


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
            "ratio": trial.target.outside.perplexity / trial.target.inside.perplexity,
            **paper.get((audit.text.dataset,), absent),
            **_bleu(trial),
        }


@table("provenance", "audit")
def whole_vocabulary(work: Work, targets: Audits) -> Iterator[Row]:
    """Both audits where the whole vocabulary is shown."""
    for audit in targets:
        for row in both(trial_of(audit, work).observe(), dataset=audit.name):
            yield {**row, "paper_auc": 1.0}


@table("provenance", "table2")
def table2(work: Work, others: Audits) -> Iterator[Row]:
    """Shadows of other shapes."""
    paper = paper_numbers("provenance", "table2", key=1)
    for audit in others:
        known = paper.get((audit.text.dataset,), {})
        for row in both(trial_of(audit, work).observe(), dataset=audit.name):
            yield {**row, "paper_auc": known.get("paper_auc")}


@table("provenance", "table3")
def table3(work: Work, targets: Audits, crossed: Audits, shown: Counts) -> Iterator[Row]:
    """Output sizes, shadows of the same and of another domain."""
    paper = paper_numbers("provenance", "table3", key=3)
    for audit in (*targets, *crossed):
        domain = "same" if audit.domain is None else "cross"
        observed = trial_of(audit, work).observe()
        for k in shown:
            known = paper.get((audit.text.dataset, k, domain), {})
            for row in both(observed, k, dataset=audit.name, domain=domain):
                yield {**row, "paper_auc": known.get("paper_auc")}


@table("provenance", "figure2")
def figure2(work: Work, crowds: Audits) -> Iterator[Row]:
    """Audits of more and more users."""
    for audit in crowds:
        observed = trial_of(audit, work).observe()
        for k in (WHOLE, 50):
            yield from both(observed, k, users=len(observed.members))


@table("provenance", "figure3")
def figure3(work: Work, targets: Audits, queries: Counts, calls: Counts) -> Iterator[Row]:
    """Numbers of queries, texts or single words, and how they are chosen."""
    first = {audit.text.dataset: audit for audit in reversed(targets)}
    for audit in reversed(first.values()):
        observed = trial_of(audit, work).observe()
        texts = tuple(few for few in queries if few <= audit.text.each)
        ways: tuple[tuple[Counts, int, tuple[Selection, ...], bool], ...] = (
            (texts, WHOLE, BY_TEXTS, False),
            (texts, 50, (*BY_TEXTS, "informative"), False),
            (calls, WHOLE, ("rare",), True),
            (calls, 50, BY_WORDS, True),
        )
        for counts, k, selections, single in ways:
            for how, count in product(selections, counts):
                mask = chosen_words(observed, count, k=k, how=how, single=single)
                for row in both(observed.take(mask), k, dataset=audit.name):
                    yield {**row, "selection": how, "queries": count, "words": single}


@table("provenance", "figure4")
def figure4(work: Work, targets: Audits, noise: tuple[float, ...]) -> Iterator[Row]:
    """Texts that were not learnt among a member's."""
    for share, observed in with_noise(trial_of(targets[0], work), noise):
        for row in both(observed, dataset=targets[0].name):
            yield {**row, "noise": share, "members": len(observed.members)}


@table("provenance", "table5")
def table5(work: Work, targets: Audits, obfuscations: tuple[str, ...]) -> Iterator[Row]:
    """Texts that were changed: in ways "none", "apertium", "synonyms", "reversed" (for tests)."""
    paper = paper_numbers("provenance", "table5", key=1)
    for name, change in {name: obfuscation(name) for name in obfuscations}.items():
        known = paper.get((name,), {})
        for row in both(trial_of(targets[0], work).observe(change), dataset=targets[0].name):
            yield {**row, "obfuscation": name, "paper_auc": known.get("paper_auc")}


@table("provenance", "null")
def null(work: Work, nulls: tuple[NullAudits, ...]) -> Iterator[Row]:
    """P-values of people who were never in: by corpus and way of querying, then of all corpora."""
    calls = [(one, null_audit(one, n)) for one in nulls for n in range(one.repetitions)]
    done = work.all(call for _, call in calls)
    audits = pd.DataFrame(
        {
            "null": nulls.index(of),
            "dataset": of.dataset,
            "known": of.known,
            "shadows": outcome["shadows"],
            "k": outcome["k"],
            "outcome": outcome,
        }
        for (of, _), finished in zip(calls, done, strict=True)
        for outcome in finished.value
    )
    ways = ["known", "shadows", "k"]
    for (_, dataset, known, *_), group in audits.groupby(["null", "dataset", *ways], sort=False):
        yield {"dataset": dataset, "known": int(known), **null_row(group.outcome.tolist())}
    for (known, *_), group in audits.groupby(ways, sort=False):
        yield {"dataset": "all", "known": int(known), **null_row(group.outcome.tolist())}


@table("provenance", "private")
def private(work: Work, crowds: Audits, dp_training: PrivateTraining) -> Iterator[Row]:
    """Both audits of a target under DP-FedAvg and of one trained plainly on the same members."""
    trial = trial_of(crowds[-1], work)
    for target in (None, private_target(trial, dp_training)):
        observed = trial.observe(target=target)
        guarantee: Row = {"epsilon": None, "delta": None}
        if target is not None:
            spent = dp_training.epsilon(len(trial.texts.members))
            guarantee = {"epsilon": spent, "delta": dp_training.delta}
        labels = {"dataset": crowds[-1].name, **guarantee, **_scores(observed.target)}
        for k in (WHOLE, 500, 50):
            yield from both(observed, k, **labels)


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
    """Where the memory sits; hidden units are silenced in so many orders."""
    for audit in targets:
        trial = trial_of(audit, work)
        seen, unseen = (
            documents_by(trial.texts.audited, names)
            for names in (trial.texts.members, trial.texts.others)
        )
        for row in anatomy(_model(trial), seen, unseen, orders=ablated).rows:
            if (row["figure"], row["measure"]) in MEMORY:
                yield {"dataset": audit.name, **row}


def both(observed: Observations, k: int = WHOLE, **labels: object) -> Iterator[Row]:
    """The rows of both audits where the target shows k words."""
    for method in METHODS:
        yield audit_row(observed, method, k=k, **labels)


def _scores(target: Target) -> Row:
    return {
        "accuracy_in": target.inside.accuracy,
        "accuracy_out": target.outside.accuracy,
        "perplexity_in": target.inside.perplexity,
        "perplexity_out": target.outside.perplexity,
    }


def _model(trial: AuditTrial) -> Any:
    load: Any = load_model if trial.texts.source_vocabulary is None else load_seq2seq
    return load(trial.target.weights.model)


def _bleu(trial: AuditTrial) -> dict[str, float | None]:
    """BLEU of the target's translations of text that it has not learnt; nothing for other tasks."""
    if trial.audit.text.task != "translation":
        return {}
    _, others = trial.target_job.parts()
    model = _model(trial)
    found = bleu(model, encode(sources_of(others), model.source_vocabulary), list(others), seed=0)
    return dict(columns("bleu_out", found.score))
