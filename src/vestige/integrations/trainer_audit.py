"""Measurements of a model during its training, by the audits of `exposure` and `extract`.

The last measurement runs the verbs. Earlier ones run only their attacks, without other orders of
the canaries' words, which no tracker shows and which double the time.
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
"""Delta of the measured epsilon."""

BASELINE = "leakage-before.json"
"""File in the directory of the trainer."""

RELATIVE_TOLERANCE = 1e-5
"""Relative tolerance for equal log-perplexities that were computed in different batches."""


@dataclass(frozen=True)
class Baseline:
    """Scores of the canaries before the training, saved for a resumed training."""

    scores: list[float] | None = None  # log-probabilities of the coin-flip canaries
    answers: list[float] | None = None  # log-perplexities of all canaries

    def save(self, file: Path) -> None:
        """Write a file that only the owner can read."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(asdict(self)))

    @classmethod
    def load(cls, file: Path) -> "Baseline":
        """Read what `save` wrote; VestigeError if it is missing or damaged."""
        remedy = "Restore it, or resume without the callback."
        content = read_bytes(file, limit=LARGEST, error=VestigeError, remedy=remedy)
        saved = parse_object(content, file, error=VestigeError, remedy=remedy)
        return cls(**{field.name: saved.get(field.name) for field in fields(cls)})

    def same(self, answers: Sequence[float]) -> bool:
        """Whether log-perplexities equal those before the training, up to rounding."""
        return self.answers is not None and all(
            math.isclose(before, now, rel_tol=RELATIVE_TOLERANCE)
            for before, now in zip(self.answers, answers, strict=False)
        )


class TrainerAudit:
    """Measures the model of a trainer. The arguments are those of `LeakageCallback`.

    Raises:
        VestigeError: there is no tokenizer, or a canary cannot be read.
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

        manifest = (
            canaries if isinstance(canaries, Manifest) else Manifest.load(manifest_file(canaries))
        )
        network, tokenizer = trainer.model, trainer.processing_class
        self.search = CanarySearch(manifest, tokenizer)
        self._trainer, self._source = trainer, canaries
        self._references, self._seed = references, seed
        self._model: Any
        with undisturbed(network):
            self._model = HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer))
        self._manifest, self._canaries = load_canaries(canaries, self._model.vocabulary)

    @property
    def cost_of_last(self) -> float:
        """Time of the last measurement, relative to earlier ones."""
        from vestige.audits.exposure.canaries import orders_compared

        orders = orders_compared(self._canaries, self._references)
        return 1 + orders / (self._references + 2 * len(self._canaries))

    def measure(
        self, baseline: Baseline | None, *, step: int = 0, last: bool = True
    ) -> tuple[LeakageSnapshot, Baseline]:
        """Measure the model; returns the measurement and the baseline.

        Args:
            baseline: None before the training; this measurement then becomes the baseline.
            step: step of the optimizer.
            last: measure as the verbs do, with checks, a record and other orders of the words.

        Raises:
            NotFinite: a score is not finite, because the training diverged.
        """
        start, network = time.perf_counter(), self._trainer.model
        with training_precision(self._trainer.args, network), undisturbed(network):
            self._model.eval()
            exposure, completion = self._measure_as_verbs() if last else self._measure_quickly()
        answers = [row["log_perplexity"] for row in exposure.canaries]
        coin_rows = [row for row in exposure.canaries if row["pattern"] == COIN_FLIP]
        scores = [-row["log_perplexity"] * math.log(2) for row in coin_rows] or None
        if not np.isfinite(answers).all():
            raise NotFinite
        baseline = baseline or Baseline(scores, answers)
        epsilon_audit = None
        if scores is not None and baseline.scores is not None:
            from vestige.audits.exposure.epsilon import audit_canaries

            coins = [canary for canary in self._canaries if canary.pattern == COIN_FLIP]
            epsilon_audit = audit_canaries(scores, coins, delta=DELTA, reference=baseline.scores)
        check = _check_different(baseline, exposure, trained=step > 0)
        snapshot = LeakageSnapshot(
            step=step,
            exposure=replace(exposure, checks=(*exposure.checks, check)),
            completion=replace(completion, checks=(*completion.checks, check)),
            audit=epsilon_audit,
            seconds=time.perf_counter() - start,
        )
        return snapshot, baseline

    def _measure_as_verbs(self) -> "tuple[CanaryExposure, Completion]":
        from vestige.audits.exposure.exposure import of_canaries
        from vestige.audits.extraction.canaries import complete_canaries
        from vestige.session import Session

        model, source = self._model, self._source
        run = Session("exposure", {"model": model, "secrets": source}, seed=self._seed)
        exposure = replace(of_canaries(run, model, source, self._references), record=run.record())
        run = Session("extract", {"model": model, "what": source, "beam": 1})
        completion = complete_canaries(run, model, source, prefix=None, beam=1)
        return exposure, replace(completion, record=run.record())

    def _measure_quickly(self) -> "tuple[CanaryExposure, Completion]":
        from vestige.audits.exposure.canaries import canary_exposure
        from vestige.audits.extraction.canaries import complete
        from vestige.models.prefix import in_learned_context

        model, canaries = in_learned_context(self._model, self._manifest), self._canaries
        exposure = canary_exposure(
            model, canaries, seed=self._seed, references=self._references, orders=0
        )
        return exposure, complete(model, canaries, beam=1)


def _check_different(
    baseline: Baseline, exposure: "CanaryExposure", *, trained: bool
) -> claims.Check:
    """The check "different": whether the training changed the scores of the canaries."""
    if baseline.answers is None:
        return claims.Check("different", "could not run", "Its earlier scores are unknown.")
    scores = [row["log_perplexity"] for row in exposure.canaries]
    lengths = np.array([row["length"] for row in exposure.canaries])
    nats = (np.array(bits) * math.log(2) / lengths for bits in (baseline.answers, scores))
    names = ("the model", "the one before the training")
    check = claims.different(*nats, same_weights=trained and baseline.same(scores), names=names)
    if not check.prevents(claims.LEAK):
        return check
    sentence = "The canaries have the scores that they had before the training."
    return replace(check, sentence=sentence)


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; restores the modes and torch's random state."""
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
    """The autocast context in which a trainer computes its losses."""
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if getattr(args, name, False):
            return torch.autocast(model.device.type, dtype=dtype)
    return nullcontext()
