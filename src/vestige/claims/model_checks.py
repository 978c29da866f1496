r"""Checks of models: does a model predict text, and do two models differ?

Without reference text, the texts are samples of the model. The information that a next-token
distribution gets from its context is the mutual information over the contexts c of the samples,

.. math:: H\Bigl(\frac{1}{n} \sum_c p(\cdot | c)\Bigr) - \frac{1}{n} \sum_c H(p(\cdot | c)),

which is 0 for zero weights, at most 0.41 nats for random weights (GPT-2 and Llama, widths 64 to
2,048), and 3 nats or more for trained models.
"""

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite, nan
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from vestige.claims.checks import alive, different, read
from vestige.claims.claim import LEAK, Check
from vestige.data.canaries.planting import manifest_file
from vestige.data.sources import CORPUS
from vestige.errors import NotFinite
from vestige.models import reading
from vestige.models.predictions import log_probs_of, predictions
from vestige.models.protocols import NextToken, length_limit
from vestige.models.reading import evaluation_mode, pack
from vestige.models.sampling import sample

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Manifest

SAMPLES, SAMPLE_LENGTH = 16, 24
"""Number of sampled texts, and tokens of each."""

LEAST_INFORMATION = 0.5
"""Least mutual information between context and next token of a trained model, in nats."""

TEXTS, LENGTH, FEWEST_TEXTS = 64, 64, 8
"""Most texts of a corpus on which a model is compared with word frequencies, tokens of each, and
least texts; with fewer, its own samples are read."""

MAX_LINES = 1000
"""Lines of a corpus that are searched for texts without canaries."""


@torch.no_grad()
def samples_of(
    model: NextToken, *, seed: int, readers: Sequence[NextToken] = ()
) -> list[list[int]]:
    """Texts of two tokens or more that a model samples without a prompt.

    Raises:
        NotFinite: the model's distribution is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    if not torch.isfinite(model.logits(model.start(1)).max()):
        raise NotFinite
    end = model.vocabulary.eos_id
    limit = length_limit(model, *readers)
    length = SAMPLE_LENGTH if limit is None else min(SAMPLE_LENGTH, limit - 1)
    if length < 1:
        return []
    samples = sample(model, SAMPLES, length=length, never=[end], generator=generator)
    return [text for text in samples if len(text) > 1]


@torch.no_grad()
def context_information(model: NextToken, texts: Sequence[Sequence[int]]) -> float:
    """Mutual information of context and next token over the contexts of some texts, in nats."""
    total = torch.zeros(model.vocab_size, dtype=torch.float64, device=model.device)
    entropy, number = 0.0, 0
    with evaluation_mode(model):
        for span in reading.read(model, pack(texts)):
            for part in predictions(model, span):
                log_probs = torch.log_softmax(part.logits.double(), dim=-1)
                probs = log_probs.exp()
                total += probs.sum(0).to(total.device)
                entropy -= float((probs * log_probs.clamp(min=-1e3)).sum())
                number += len(probs)
    mean = total / number
    return float(torch.special.entr(mean).sum()) - entropy / number


def information_by_samples(model: NextToken, *, seed: int) -> float | None:
    """`context_information` over texts that the model samples.

    NaN if scores are not finite; None if too few texts can be sampled.
    """
    try:
        texts = samples_of(model, seed=seed)
    except NotFinite:
        return nan
    return context_information(model, texts) if len(texts) >= SAMPLES // 2 else None


def alive_by_samples(model: NextToken, *, seed: int, who: str = "the model") -> Check:
    """The check "alive" on texts that the model samples."""
    return alive_of(information_by_samples(model, seed=seed), who=who)


def alive_of(information: float | None, *, who: str = "the model") -> Check:
    """The check "alive" from the result of `information_by_samples`."""
    name = who[:1].upper() + who[1:]
    if information is None:
        return Check("alive", "could not run", f"{name} generates too few texts.")
    if not isfinite(information):
        broken = f"Scores of {who} are not finite: its weights are broken."
        return Check("alive", "failed", broken)
    sentence = (
        f"{name} gains {information:.2f} nats per token from the context; "
        f"required: {LEAST_INFORMATION:g}."
    )
    if information >= LEAST_INFORMATION:
        return Check("alive", "passed", sentence)
    return Check("alive", "failed", f"{sentence} It is too weak to audit.")


def adapter_check(
    model: NextToken, *, seed: int, texts: Sequence[Sequence[int]] | None = None
) -> Check | None:
    """The check "different" of an adapter and its base; None if the model is no adapter."""
    disable_adapter = getattr(getattr(model, "network", None), "disable_adapter", None)
    if disable_adapter is None:
        return None
    try:
        texts = samples_of(model, seed=seed) if texts is None else texts
    except NotFinite:
        return Check("different", "could not run", "The adapter has no finite scores.")
    if not texts:
        return Check("different", "could not run", "The adapter generates too few texts.")
    adapted = np.concatenate(log_probs_of(model, texts))
    with disable_adapter():
        base = np.concatenate(log_probs_of(model, texts))
    check = different(base, adapted)
    if check.state == "failed" and check.prevents(LEAK):
        return replace(check, sentence="The adapter changes nothing: base and adapter agree.")
    return replace(check, sentence=check.sentence.replace("models", "adapter and its base"))


def pair_checks(
    before: NextToken,
    after: NextToken,
    *,
    seed: int,
    names: tuple[str, str] = ("BEFORE", "AFTER"),
) -> tuple[Check, ...]:
    """The checks "alive" of both models, and "different", on texts that they sample."""
    models = (before, after)
    alive_checks = [
        alive_by_samples(model, seed=seed, who=name)
        for model, name in zip(models, names, strict=True)
    ]
    if any(check.state == "failed" for check in alive_checks):
        not_run = Check("different", "could not run", "A model is too weak to compare.")
        return (*alive_checks, not_run)
    texts = [
        text
        for number, model in enumerate(models)
        for text in samples_of(model, seed=number, readers=models)
    ]
    scores = [np.concatenate(log_probs_of(model, texts)) for model in models]
    return (*alive_checks, different(*scores))


def canary_checks(
    model: NextToken,
    manifest: "str | PathLike[str] | Manifest",
    loaded: "Manifest",
    *,
    readable: int,
    seed: int = 0,
    useless: str | None = None,
) -> tuple[Check, ...]:
    """The checks "alive" and "read", and "different" of an adapter and its base.

    Args:
        model: without the prefix of a chat template.
        manifest: path or manifest, as passed by the user. The corpus in the folder of the manifest
            is used to test the model, if there is one.
        loaded: the loaded manifest.
        readable: canaries and controls that the model can read.
        seed: of the texts that the model samples if there is no corpus.
        useless: a warning of the training that the model is useless, if any.
    """
    texts = [] if not isinstance(manifest, str | PathLike) else _corpus_texts(manifest, loaded)
    longest = min(LENGTH, (length_limit(model) or LENGTH) - 1)
    rows = [ids[:longest] for ids in model.vocabulary.encode_batch(texts) if len(ids) > 1]
    if useless is not None:
        alive_check = Check("alive", "failed", useless)
    elif len(rows) < FEWEST_TEXTS:
        alive_check = alive_by_samples(model, seed=seed)
    else:
        alive_check = alive(log_probs_of(model, rows), rows, who="the model")
    read_check = read(readable, len(loaded.canaries), what="the canaries and controls")
    adapter = adapter_check(model, seed=seed)
    return (alive_check, read_check) if adapter is None else (alive_check, read_check, adapter)


def _corpus_texts(manifest: "str | PathLike[str]", loaded: "Manifest") -> list[str]:
    """Texts without canaries from the corpus of a manifest; none if it cannot be read."""
    try:
        corpus = manifest_file(manifest).parent / CORPUS
        return list(islice(_unplanted(corpus, set(loaded.copy_positions)), TEXTS))
    except (OSError, ValueError):
        return []


def _unplanted(corpus: Path, planted: Container[int]) -> Iterator[str]:
    with corpus.open(encoding="utf-8") as file:
        for number, line in enumerate(islice(file, MAX_LINES)):
            row = json.loads(line)
            text = row.get("text") if isinstance(row, dict) else None
            if number not in planted and isinstance(text, str) and text:
                yield text
