"""Measurement of a model during its training, by the audits of `exposure` and `extract`.

The verbs themselves run at the end. Before that their attacks run without other orders of the
canaries' words, which no tracker shows and which double the time.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vestige import claims
from vestige.data.canaries.planting import manifest_file
from vestige.data.canaries.texts import COIN_FLIP, Manifest
from vestige.data.files import LARGEST, parse_object, read_bytes
from vestige.data.writing import write_text
from vestige.errors import NotFinite, VestigeError
from vestige.integrations.canary_search import CanarySearch
from vestige.integrations.leakage import LeakageSnapshot

if TYPE_CHECKING:
    from vestige.audits.exposure.canary_result import CanaryExposure
    from vestige.audits.extraction.canaries import Completion

DELTA = 1e-5
"""Of the measured epsilon."""

BASELINE = "leakage-before.json"
"""In the trainer's own directory."""

ROUNDING = 1e-5
"""Relative difference of two equal log-perplexities that were computed in other batches."""


@dataclass(frozen=True)
class Baseline:
    """What a model knew before its training, for a training that is resumed."""

    scores: list[float] | None = None  # log-probabilities of the coin-flip canaries
    answers: list[float] | None = None  # log-perplexity of each canary

    def save(self, file: Path) -> None:
        """Write a file that only its owner can read."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(asdict(self)))

    @classmethod
    def load(cls, file: Path) -> "Baseline":
        """Read what `save` wrote; VestigeError if it is missing or damaged."""
        remedy = "Restore it, or resume without the callback."
        content = read_bytes(file, limit=LARGEST, error=VestigeError, remedy=remedy)
        found = parse_object(content, file, error=VestigeError, remedy=remedy)
        return cls(**{field.name: found.get(field.name) for field in fields(cls)})

    def same(self, answers: Sequence[float]) -> bool:
        """Whether log-perplexities are those from before the training, up to rounding."""
        return self.answers is not None and all(
            math.isclose(one, other, rel_tol=ROUNDING)
            for one, other in zip(self.answers, answers, strict=False)
        )


class Measurement:
    """Measures a trainer's model again and again; arguments are those of `LeakageCallback`.

    Canaries are read once: VestigeError if there is no tokenizer, or a canary cannot be read.
    """

    def __init__(
        self,
        trainer: Any,
        canaries: str | PathLike[str] | Manifest,
        *,
        references: int,
        seed: int,
    ) -> None:
        from vestige.data.canaries.texts import load_canaries
        from vestige.data.subwords import SubwordVocabulary
        from vestige.models.hugging_face import HuggingFaceLanguageModel

        given = canaries
        read = given if isinstance(given, Manifest) else Manifest.load(manifest_file(given))
        network, tokenizer = trainer.model, trainer.processing_class
        self.search = CanarySearch(read, tokenizer)
        self._trainer, self._given = trainer, given
        self._references, self._seed = references, seed
        self._model: Any
        with undisturbed(network):
            self._model = HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer))
        self._manifest, self._canaries = load_canaries(given, self._model.vocabulary)

    @property
    def cost_of_last(self) -> float:
        """Time of the measurement at the end, in measurements before it."""
        from vestige.audits.exposure.canaries import orders_compared

        others = orders_compared(self._canaries, self._references)
        return 1 + others / (self._references + 2 * len(self._canaries))

    def measure(
        self, before: Baseline | None, *, step: int = 0, last: bool = True
    ) -> tuple[LeakageSnapshot, Baseline]:
        """What the model reveals now, and what it knew before the training.

        Args:
            before: None: the training has not begun, so that it is what the model knows now.
            step: of the optimizer.
            last: measure as the verbs do, with checks, a record and other orders of the words.

        Raises:
            NotFinite: a score is not finite, since the training diverged.
        """
        began, network = time.perf_counter(), self._trainer.model
        with training_precision(self._trainer.args, network), undisturbed(network):
            self._model.eval()
            found, completion = self._by_verbs() if last else self._by_attacks()
        answers = [row["log_perplexity"] for row in found.canaries]
        flipped = [row for row in found.canaries if row["pattern"] == COIN_FLIP]
        scores = [-row["log_perplexity"] * math.log(2) for row in flipped] or None
        if not np.isfinite(answers).all():
            raise NotFinite
        before = before or Baseline(scores, answers)
        audit = None
        if scores is not None and before.scores is not None:
            from vestige.audits.exposure.epsilon import audit_canaries

            coins = [canary for canary in self._canaries if canary.pattern == COIN_FLIP]
            audit = audit_canaries(scores, coins, delta=DELTA, reference=before.scores)
        different = _different(before, found, trained=step > 0)
        snapshot = LeakageSnapshot(
            step=step,
            found=replace(found, checks=(*found.checks, different)),
            completion=replace(completion, checks=(*completion.checks, different)),
            audit=audit,
            seconds=time.perf_counter() - began,
        )
        return snapshot, before

    def _by_verbs(self) -> "tuple[CanaryExposure, Completion]":
        from vestige.audits.exposure.exposure import of_canaries
        from vestige.audits.extraction.canaries import complete_canaries
        from vestige.session import Session

        model, given = self._model, self._given
        run = Session("exposure", {"model": model, "secrets": given}, seed=self._seed)
        found = of_canaries(run, model, given, self._references)
        other = Session("extract", {"model": model, "what": given, "beam": 1})
        completion = complete_canaries(other, model, given, prefix=None, beam=1)
        return replace(found, record=run.record()), replace(completion, record=other.record())

    def _by_attacks(self) -> "tuple[CanaryExposure, Completion]":
        from vestige.audits.exposure.canaries import canary_exposure
        from vestige.audits.extraction.canaries import complete
        from vestige.models.prefix import in_learned_context

        model, canaries = in_learned_context(self._model, self._manifest), self._canaries
        found = canary_exposure(
            model, canaries, seed=self._seed, references=self._references, orders=0
        )
        return found, complete(model, canaries, beam=1)


def _different(before: Baseline, found: "CanaryExposure", *, trained: bool) -> claims.Check:
    """Whether the training changed the scores of the canaries, in nats per token."""
    if before.answers is None:
        return claims.Check("different", "could not run", "Its earlier scores are unknown.")
    now = [row["log_perplexity"] for row in found.canaries]
    lengths = np.array([row["length"] for row in found.canaries])
    nats = (np.array(bits) * math.log(2) / lengths for bits in (before.answers, now))
    names = ("the model", "the one before the training")
    check = claims.different(*nats, same_weights=trained and before.same(now), names=names)
    if not check.prevents(claims.LEAK):
        return check
    same = "The canaries have the scores that they had before the training."
    return replace(check, sentence=same)


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the modes and torch's generators as before."""
    modes = {module: module.training for module in model.modules()}
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def training_precision(args: Any, model: Any) -> AbstractContextManager[Any]:
    """The autocast in which a trainer computes its losses."""
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if getattr(args, name, False):
            return torch.autocast(model.device.type, dtype=dtype)
    return nullcontext()
