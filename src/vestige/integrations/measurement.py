"""What is asked of a model at a moment of its training.

Canaries, references and texts are read once for a training. Between its end and its beginning the
verbs' own attacks are asked without other orders of the canaries' words, which no tracker is told
and which take as long as all else; at the end the verbs themselves are, for a run folder.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vestige import claims
from vestige.data.manifest import BY_COIN
from vestige.errors import NotFinite
from vestige.integrations.before import Before
from vestige.integrations.canary_search import require_tokenizer
from vestige.integrations.moment import Moment

if TYPE_CHECKING:
    from vestige.audits.exposure.canary_result import CanaryExposure
    from vestige.audits.exposure.epsilon import CanaryAudit
    from vestige.data.manifest import Canary, Manifest
    from vestige.integrations.training_texts import TextSample
    from vestige.models.protocols import LanguageModel

DELTA = 1e-5
"""Of the measured epsilon."""


class Measurement:
    """Questions about planted canaries and a sample of texts, put to one model time after time.

    Args:
        canaries: the directory of `plant`, or its manifest.
        model: as Transformers or PEFT has it; nothing of it is copied.
        tokenizer: its own.
        references: phrases that each canary is compared with.
        seed: of the references.
        sample: texts to compare; None: none.

    Raises:
        VestigeError: there is no tokenizer, or no canary that it can read.
    """

    def __init__(
        self,
        canaries: "str | PathLike[str] | Manifest",
        model: Any,
        tokenizer: Any,
        *,
        references: int,
        seed: int,
        sample: "TextSample | None" = None,
    ) -> None:
        from vestige.data.manifest import load_canaries

        require_tokenizer(tokenizer)
        self.network, self.references, self.seed = model, references, seed
        self.sample = sample
        with undisturbed(model):
            self._asked = _language_model(model, tokenizer)
        self._given = canaries
        self.sealed, self.canaries = load_canaries(canaries, self._asked.vocabulary)

    @cached_property
    def _flipped(self) -> "list[Canary]":
        return [canary for canary in self.canaries if canary.pattern in BY_COIN]

    @property
    def dearer(self) -> float:
        """What the end takes, in other moments."""
        from vestige.audits.exposure.canaries import orders_compared

        others = orders_compared(self.canaries, self.references)
        return 1 + others / (self.references + 2 * len(self.canaries))

    def moment(
        self, before: Before | None, *, step: int = 0, whole: bool = True
    ) -> tuple[Moment, Before]:
        """What the model gives away now, and what it knew before the training.

        Args:
            before: None: it has not begun, so that it is what the model knows now.
            step: of the optimizer.
            whole: as the verbs find it, with other orders of the canaries' words and with a record.

        Raises:
            NotFinite: scores are no numbers, or infinite: the training diverged.
        """
        began = time.perf_counter()
        with undisturbed(self.network):
            self._asked.eval()
            found, completion = self._by_verbs() if whole else self._by_attacks()
            scores = self._scores(found)
            losses = None if self.sample is None else self.sample.losses(self.network)
        answers = [row["log_perplexity"] for row in found.canaries]
        if not np.isfinite([*answers, *chain.from_iterable(losses or ())]).all():
            raise NotFinite
        sample = None if self.sample is None else self.sample.sha256
        before = before or Before(scores, losses, sample, answers)
        texts = None
        if self.sample is not None and losses is not None and before.losses is not None:
            before.require_sample(self.sample.sha256)
            texts = self.sample.gap(losses, before.losses)
        unchanged = step > 0 and before.same(answers)
        lengths = [row["length"] for row in found.canaries]
        different = _different(before.answers, answers, lengths, unchanged)
        found = replace(found, checks=(*found.checks, different))
        completion = replace(completion, checks=(*completion.checks, different))
        moment = Moment(
            step=step,
            found=found,
            completion=completion,
            audit=self._audit(scores, before.scores),
            texts=texts,
            unchanged=unchanged,
            seconds=time.perf_counter() - began,
            whole=whole,
        )
        return moment, before

    def _by_verbs(self) -> tuple["CanaryExposure", Any]:
        from vestige.audits.exposure.exposure import of_canaries
        from vestige.audits.extraction.canaries import complete_canaries
        from vestige.session import Session

        asked, given = self._asked, self._given
        named = {"model": asked, "secrets": given}
        run = Session("exposure", named, seed=self.seed)
        found = of_canaries(run, asked, given, self.references)
        other = Session("extract", {"model": asked, "what": given, "beam": 1})
        completion = complete_canaries(other, asked, given, prefix=None, beam=1)
        return replace(found, record=run.record()), replace(completion, record=other.record())

    def _by_attacks(self) -> tuple["CanaryExposure", Any]:
        from vestige.audits.exposure.canaries import canary_exposure
        from vestige.audits.extraction.canaries import complete
        from vestige.models.behind import asked_as_learnt

        behind = asked_as_learnt(self._asked, self.sealed)
        found = canary_exposure(
            behind, self.canaries, seed=self.seed, references=self.references, orders=0
        )
        return found, complete(behind, self.canaries, beam=1)

    def _scores(self, found: "CanaryExposure") -> list[float] | None:
        """`canary_scores` of the canaries whose coins were flipped, which exposure has asked."""
        from vestige.models.behind import asked_as_learnt, canary_scores

        if not self._flipped:
            return None
        if all(" ".join(one.phrase.split()) == one.phrase for one in self._flipped):
            bits = (r["log_perplexity"] for r in found.canaries if r["pattern"] in BY_COIN)
            return [-each * math.log(2) for each in bits]
        scores = canary_scores(asked_as_learnt(self._asked, self.sealed), self._flipped)
        return list(map(float, scores))

    def _audit(
        self, scores: list[float] | None, before: list[float] | None
    ) -> "CanaryAudit | None":
        from vestige.audits.exposure.epsilon import audit_canaries

        if scores is None or before is None:
            return None
        return audit_canaries(scores, self._flipped, delta=DELTA, reference=before)


def _different(
    before: Sequence[float] | None, now: Sequence[float], lengths: Sequence[int], unchanged: bool
) -> claims.Check:
    """Whether a training has changed what a model makes of the canaries, by nats per token."""
    if before is None:
        return claims.Check("different", "could not run", "Its earlier scores are unknown.")
    nats = (np.array(bits) * math.log(2) / np.array(lengths) for bits in (before, now))
    found = claims.different(*nats, same_weights=unchanged)
    if found.prevents(claims.LEAK):
        return replace(
            found, sentence=("The canaries have the scores that they had before the training.")
        )
    return replace(
        found, sentence=found.sentence.replace("models", "model and the one before the training")
    )


def _language_model(model: Any, tokenizer: Any) -> "LanguageModel":
    from vestige.data.subwords import SubwordVocabulary
    from vestige.models.hugging_face import HuggingFaceLanguageModel

    return HuggingFaceLanguageModel(model, SubwordVocabulary(tokenizer))


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """The model in evaluation mode, without gradients; its modes and torch's chance as before."""
    modes = {name: module.training for name, module in model.named_modules()}
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            model.eval()
            yield
    finally:
        for name, module in model.named_modules():
            module.training = modes[name]


def training_precision(args: Any, model: Any) -> AbstractContextManager[Any]:
    """The autocast in which a trainer computes its losses; nothing where it trains in float32."""
    for dtype in (torch.bfloat16, torch.float16):
        if getattr(args, {torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype], False):
            return torch.autocast(model.device.type, dtype=dtype)
    return nullcontext()
