"""Figures 5 to 7 of the paper on the targets of its other tables.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5.

Differs from the paper: hidden units of Figure 7 are silenced in the targets of the other tables,
which learnt with dropout; the paper trains others without it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from reproduction.papers import Row
from reproduction.provenance.audit_trials import AuditTrial
from vestige.audits.anatomy.anatomy import anatomy
from vestige.data.corpus import Corpus
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.shadows import train_shadow

DRAWN = {
    ("means", "log_prob"),
    ("means", "share"),
    ("ranks", "rank"),
    ("ablation", "kept"),
    ("ablation", "log_rank_lost"),
}
"""Figures and what each of them measures."""


def memory_rows(trial: AuditTrial, *, orders: int, **labels: object) -> Iterator[Row]:
    """Rows of the three figures: what is drawn in them, without the cells of the histograms."""
    model = _target(trial)
    seen, unseen = (_of(trial, names) for names in (trial.texts.members, trial.texts.others))
    found = anatomy(model, seen, unseen, orders=orders)
    for row in found.rows:
        if (row["figure"], row["measure"]) in DRAWN:
            yield {**labels, **row}


def _target(trial: AuditTrial) -> Any:
    load = load_model if trial.texts.source_vocabulary is None else load_seq2seq
    return load(train_shadow(trial.target).directory / "model")


def _of(trial: AuditTrial, names: tuple[str, ...]) -> Corpus:
    corpus = trial.texts.audited
    return corpus.take(np.flatnonzero(np.isin(np.array(corpus.users), names)))
