r"""Whether a model predicts at all, and whether two models differ.

Without reference text the model writes the text itself. Over the contexts c of some samples, what a
next-token distribution owes to its context is the mutual information

.. math:: H\Bigl(\frac{1}{n} \sum_c p(\cdot | c)\Bigr) - \frac{1}{n} \sum_c H(p(\cdot | c)),

which is 0 for zero weights, at most 0.41 nats for the fresh random weights that were tried (GPT-2
and Llama, widths 64 to 2,048), and 3 nats or more for trained models.
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

SAMPLES, SAMPLED = 16, 24
"""Texts that a model samples, and tokens of each."""

LEAST_INFORMATION = 0.5
"""Nats of mutual information between context and next token."""

TEXTS, LENGTH, FEWEST_TEXTS = 64, 64, 8
"""Texts of a corpus, and tokens of each, on which a model is compared with word frequencies; with
fewer texts its own samples are read."""

LINES = 1000
"""Lines of a corpus that are tried."""


@torch.no_grad()
def samples_of(
    model: NextToken, *, seed: int, readers: Sequence[NextToken] = ()
) -> list[list[int]]:
    """Texts that a model samples from their beginning, of two tokens or more.

    Raises:
        NotFinite: the model's distribution is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    if not torch.isfinite(model.logits(model.start(1)).max()):
        raise NotFinite
    end = model.vocabulary.eos_id
    limit = length_limit(model, *readers)
    length = SAMPLED if limit is None else min(SAMPLED, limit - 1)
    if length < 1:
        return []
    found = sample(model, SAMPLES, length=length, never=[end], generator=generator)
    return [text for text in found if len(text) > 1]


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
    """`context_information` over texts that the model samples itself.

    NaN where scores are not finite; None where too few texts can be sampled.
    """
    try:
        texts = samples_of(model, seed=seed)
    except NotFinite:
        return nan
    return context_information(model, texts) if len(texts) >= SAMPLES // 2 else None


def alive_by_samples(model: NextToken, *, seed: int, who: str = "the model") -> Check:
    """The check "alive" on texts that the model samples itself."""
    return alive_of(information_by_samples(model, seed=seed), who=who)


def alive_of(information: float | None, *, who: str = "the model") -> Check:
    """The check "alive" from what `information_by_samples` found."""
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
    """The check "different" of an adapter against its base; None for a model that is none."""
    disabled = getattr(getattr(model, "network", None), "disable_adapter", None)
    if disabled is None:
        return None
    try:
        texts = samples_of(model, seed=seed) if texts is None else texts
    except NotFinite:
        return Check("different", "could not run", "The adapter has no finite scores.")
    if not texts:
        return Check("different", "could not run", "The adapter generates too few texts.")
    own = np.concatenate(log_probs_of(model, texts))
    with disabled():
        base = np.concatenate(log_probs_of(model, texts))
    found = different(base, own)
    if found.state == "failed" and found.prevents(LEAK):
        return replace(found, sentence="The adapter changes nothing: base and adapter agree.")
    return replace(found, sentence=found.sentence.replace("models", "adapter and its base"))


def pair_checks(
    before: NextToken,
    after: NextToken,
    *,
    seed: int,
    names: tuple[str, str] = ("BEFORE", "AFTER"),
    finding: bool = False,
) -> tuple[Check, ...]:
    """The checks "alive", of both, and "different", on texts that both models sample."""
    models = (before, after)
    both = [
        alive_by_samples(model, seed=seed, who=name)
        for model, name in zip(models, names, strict=True)
    ]
    if any(check.state == "failed" for check in both):
        dead = Check("different", "could not run", "A model is too weak to compare.")
        return (*both, dead)
    texts = [
        text
        for number, one in enumerate(models)
        for text in samples_of(one, seed=number, readers=models)
    ]
    own, other = (np.concatenate(log_probs_of(model, texts)) for model in models)
    return (*both, different(own, other, finding=finding))


def canary_checks(
    model: NextToken,
    manifest: "str | PathLike[str] | Manifest",
    sealed: "Manifest",
    *,
    readable: int,
    seed: int = 0,
    useless: str | None = None,
) -> tuple[Check, ...]:
    """The checks "alive" and "read", and "different" of an adapter against its base.

    Args:
        model: as it was loaded, without the prefix of a chat template.
        manifest: as it was given. The model reads the corpus in the same folder, if there is one.
        sealed: the same, loaded.
        readable: canaries and controls that the model's vocabulary holds.
        seed: of the texts that the model samples if there is no corpus.
        useless: why its own training calls the model useless, if it does.
    """
    texts = [] if not isinstance(manifest, str | PathLike) else _texts_of(manifest, sealed)
    longest = min(LENGTH, (length_limit(model) or LENGTH) - 1)
    ids = [own[:longest] for own in model.vocabulary.encode_batch(texts) if len(own) > 1]
    if useless is not None:
        living = Check("alive", "failed", useless)
    elif len(ids) < FEWEST_TEXTS:
        living = alive_by_samples(model, seed=seed)
    else:
        living = alive(log_probs_of(model, ids), ids, who="the model")
    known = read(readable, len(sealed.canaries), what="the canaries and controls")
    adapter = adapter_check(model, seed=seed)
    return (living, known) if adapter is None else (living, known, adapter)


def _texts_of(manifest: "str | PathLike[str]", sealed: "Manifest") -> list[str]:
    """Texts of the corpus of a manifest without canaries; none if it cannot be read."""
    try:
        corpus = manifest_file(manifest).parent / CORPUS
        return list(islice(_unplanted(corpus, set(sealed.copy_positions)), TEXTS))
    except (OSError, ValueError):
        return []


def _unplanted(corpus: Path, planted: Container[int]) -> Iterator[str]:
    with corpus.open(encoding="utf-8") as file:
        for number, line in enumerate(islice(file, LINES)):
            row = json.loads(line)
            text = row.get("text") if isinstance(row, dict) else None
            if number not in planted and isinstance(text, str) and text:
                yield text
