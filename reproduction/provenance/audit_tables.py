"""Rows of the tables of Song and Shmatikov (2019): train, observe ranks, audit."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from reproduction.provenance import paper_numbers as paper
from reproduction.provenance.audit_plans import NamedSetting, ProvenanceScale
from reproduction.provenance.audit_rows import METHODS, audit_row
from reproduction.provenance.audit_studies import (
    Selection,
    by_noise,
    by_obfuscation,
    by_queries,
)
from reproduction.provenance.audit_trials import AuditSetting, AuditTrial, train_all
from reproduction.provenance.memory_rows import memory_rows
from reproduction.provenance.null_audits import null_rows
from reproduction.provenance.obfuscation import (
    Apertium,
    back_translated,
    read_wordnet,
    with_synonyms,
)
from reproduction.provenance.private_audits import private_ranks, private_rows
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode, sources_of
from vestige.errors import DataError
from vestige.metrics.estimates import columns
from vestige.models.checkpoints import load_seq2seq
from vestige.monitor import Monitor
from vestige.training.evaluate import bleu
from vestige.training.shadows import train_shadow

Rows = Iterator[Mapping[str, Any]]
WHOLE = 10**9
"""The whole vocabulary, whatever its size."""


@dataclass(frozen=True)
class TableRunner:
    """The tables of a scale: each trains what is missing, observes ranks and audits."""

    config: ProvenanceScale
    directory: Path
    data: Path | None
    map_fn: Callable[..., Iterable[Any]]
    monitor: Monitor

    @cached_property
    def _trials(self) -> dict[AuditSetting, AuditTrial]:
        return {}

    def trial(self, named: NamedSetting) -> AuditTrial:
        """The trial of a setting; its texts are read once."""
        made = AuditTrial(named.setting, self.directory, self.data)
        return self._trials.setdefault(named.setting, made)

    def ready(self, some: Iterable[NamedSetting]) -> Iterator[tuple[NamedSetting, AuditTrial]]:
        """Settings with their trials, all trained."""
        made = [(named, self.trial(named)) for named in some]
        train_all([trial for _, trial in made], map_fn=self.map_fn, monitor=self.monitor)
        yield from made

    def table1(self) -> Rows:
        """Word accuracy and perplexity of the targets."""
        for named, trial in self.ready(self.config.targets):
            target = train_shadow(trial.target)
            known = paper.PAPER_TABLE1.get(named.dataset, (None,) * 4)
            yield {
                "dataset": named.name,
                "users": len(target.members),
                "accuracy_in": target.inside.accuracy,
                "accuracy_out": target.outside.accuracy,
                "perplexity_in": target.inside.perplexity,
                "perplexity_out": target.outside.perplexity,
                "ratio": target.outside.perplexity / target.inside.perplexity,
                **dict(zip(("paper_accuracy_in", "paper_accuracy_out"), known[:2], strict=True)),
                **dict(
                    zip(("paper_perplexity_in", "paper_perplexity_out"), known[2:], strict=True)
                ),
                **_bleu(trial),
            }

    def whole(self) -> Rows:
        """Both audits where the whole vocabulary is shown."""
        for named, trial in self.ready(self.config.targets):
            for method in METHODS:
                row = audit_row(trial.observe(), method, k=WHOLE, dataset=named.name)
                yield {**row, "paper_auc": 1.0}

    def table2(self) -> Rows:
        """Shadows of other shapes."""
        for named, trial in self.ready(self.config.others):
            for method in METHODS:
                row = audit_row(trial.observe(), method, k=WHOLE, dataset=named.name)
                yield {**row, "paper_auc": paper.PAPER_TABLE2.get(named.dataset)}

    def table3(self) -> Rows:
        """Output sizes, shadows of the same and of another domain."""
        both = (("same", self.config.targets), ("cross", self.config.crossed))
        for column, (domain, targets) in enumerate(both):
            for named, trial in self.ready(targets):
                observed = trial.observe()
                for k in self.config.shown:
                    known = paper.PAPER_TABLE3.get(named.dataset, {}).get(k, (None, None))[column]
                    for method in METHODS:
                        row = audit_row(observed, method, k=k, dataset=named.name, domain=domain)
                        yield {**row, "paper_auc": known}

    def figure2(self) -> Rows:
        """More and more users."""
        for _, trial in self.ready(self.config.crowds):
            observed = trial.observe()
            for k in (WHOLE, 50):
                for method in METHODS:
                    yield audit_row(observed, method, k=k, users=len(observed.members))

    def figure3(self) -> Rows:
        """Numbers of queries, and how they are chosen."""
        texts: tuple[Selection, ...] = ("rare-sum", "rare", "random")
        words: tuple[Selection, ...] = ("rare", "informative", "random")
        first = {named.dataset: named for named in reversed(self.config.targets)}
        for named, trial in self.ready(reversed(first.values())):
            observed = trial.observe()
            queries = [few for few in self.config.queries if few <= named.setting.text.each]
            ask = partial(by_queries, observed, dataset=named.name)
            yield from ask(queries, k=WHOLE, how=texts)
            yield from ask(queries, k=50, how=(*texts, "informative"))
            yield from ask(self.config.calls, k=WHOLE, how=("rare",), single=True)
            yield from ask(self.config.calls, k=50, how=words, single=True)

    def figure4(self) -> Rows:
        """Texts that were not learnt among a member's."""
        for named, trial in self.ready(self.config.targets[:1]):
            yield from by_noise(trial, self.config.noise, k=WHOLE, dataset=named.name)

    def table5(self) -> Rows:
        """Texts that were changed."""
        for named, trial in self.ready(self.config.targets[:1]):
            ways = {name: _obfuscation(name) for name in self.config.obfuscations}
            for row in by_obfuscation(trial, ways, k=WHOLE, dataset=named.name):
                yield {**row, "paper_auc": paper.PAPER_TABLE5.get(str(row["obfuscation"]))}

    def null(self) -> Rows:
        """P-values of people who were never in."""
        yield from null_rows(
            self.config.null, self.directory, self.data, map_fn=self.map_fn, monitor=self.monitor
        )

    def private(self) -> Rows:
        """DP-FedAvg beside a plain training."""
        for named, trial in self.ready(self.config.crowds[-1:]):
            shown = (WHOLE, 500, 50)
            yield from private_rows(trial, self.config.private, k=shown, dataset=named.name)

    def figure8(self) -> Rows:
        """Ranks of words under both."""
        for named, trial in self.ready(self.config.crowds[-1:]):
            yield from private_ranks(trial, self.config.private, bins=10, dataset=named.name)

    def memory(self) -> Rows:
        """Figures 5 to 7."""
        for named, trial in self.ready(self.config.targets):
            yield from memory_rows(trial, orders=self.config.ablated, dataset=named.name)


def _bleu(trial: AuditTrial) -> dict[str, float | None]:
    """BLEU of the target's translations of text that it has not learnt; nothing for other tasks."""
    if trial.setting.text.task != "translation":
        return {}
    _, others = trial.target.parts()
    model = load_seq2seq(train_shadow(trial.target).directory / "model")
    found = bleu(model, encode(sources_of(others), model.source_vocabulary), list(others), seed=0)
    return dict(columns("bleu_out", found.score))


def _obfuscation(name: str) -> Callable[[Corpus], Corpus]:
    """A way to change texts, by name."""
    if name == "none":
        return lambda corpus: corpus
    if name == "reversed":
        return partial(_each, change=lambda text: " ".join(reversed(text.split())))
    if name == "apertium":
        if shutil.which("apertium") is None:
            raise DataError(
                "back-translation needs the command apertium, which is not there",
                remedy="Install Debian's apertium and apertium-eng-spa.",
            )
        return partial(back_translated, there=Apertium("eng-spa"), back=Apertium("spa-eng"))
    folder = os.environ.get("WNSEARCHDIR", "/usr/share/wordnet")
    return partial(with_synonyms, synonyms=read_wordnet(folder), seed=0)


def _each(corpus: Corpus, *, change: Callable[[str], str]) -> Corpus:
    return Corpus.from_texts(map(change, corpus), users=corpus.users, sources=corpus.sources)
