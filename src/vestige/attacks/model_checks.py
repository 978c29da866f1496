r"""Whether a model predicts at all, and whether two models differ, without reference text.

The model writes the text itself. Over the contexts c of some samples, what a next-token
distribution owes to its context is the mutual information

.. math:: H\Bigl(\frac{1}{n} \sum_c p(\cdot | c)\Bigr) - \frac{1}{n} \sum_c H(p(\cdot | c)),

which is 0 for zero weights, at most 0.41 nats for the fresh random weights that were tried (GPT-2
and Llama, widths 64 to 2,048), and 3 nats or more for trained models.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, nan

import numpy as np
import torch

from vestige import claims
from vestige.errors import NotFinite
from vestige.models.predictions import log_probs_of, predictions
from vestige.models.protocols import NextToken
from vestige.models.reading import pack, read
from vestige.models.sampling import sample

SAMPLES = 16
LENGTH = 24
LEAST_INFORMATION = 0.5
"""Nats of mutual information between context and next token."""


@torch.no_grad()
def samples_of(
    model: NextToken, *, seed: int, readers: Sequence[NextToken] = ()
) -> list[list[int]]:
    """Texts that a model samples from their beginning, of two tokens or more.

    Args:
        readers: other models that are to read the texts, so that none is too long for them.

    Raises:
        NotFinite: the model's distribution is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    if not torch.isfinite(model.logits(model.start(1)).max()):
        raise NotFinite
    end = model.vocabulary.eos_id
    limits = [getattr(one, "longest", None) for one in (model, *readers)]
    length = min([LENGTH, *(limit - 1 for limit in limits if limit is not None)])
    if length < 1:
        return []
    found = sample(model, SAMPLES, length=length, never=[end], generator=generator)
    return [text for text in found if len(text) > 1]


@torch.no_grad()
def context_information(model: NextToken, texts: Sequence[Sequence[int]]) -> float:
    """Mutual information of context and next token over the contexts of some texts, in nats."""
    total = torch.zeros(model.vocab_size, dtype=torch.float64, device=model.device)
    entropy, number = 0.0, 0
    for span in read(model, pack(texts)):
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

    Returns:
        NaN where scores are not finite; None where too few texts can be sampled.
    """
    try:
        texts = samples_of(model, seed=seed)
    except NotFinite:
        return nan
    return context_information(model, texts) if len(texts) >= SAMPLES // 2 else None


def alive_by_samples(model: NextToken, *, seed: int, who: str = "the model") -> claims.Check:
    """The check "alive" on texts that the model samples itself."""
    return alive_of(information_by_samples(model, seed=seed), who=who)


def alive_of(information: float | None, *, who: str = "the model") -> claims.Check:
    """The check "alive" from what `information_by_samples` found."""
    if information is None:
        return claims.Check("alive", "could not run", f"{_name(who)} generates too few texts.")
    if not isfinite(information):
        broken = f"Scores of {who} are not finite: its weights are broken."
        return claims.Check("alive", "failed", broken)
    sentence = (
        f"{_name(who)} gains {information:.2f} nats per token from the context; "
        f"required: {LEAST_INFORMATION:g}."
    )
    if information >= LEAST_INFORMATION:
        return claims.Check("alive", "passed", sentence)
    return claims.Check("alive", "failed", f"{sentence} It is too weak to audit.")


def _name(who: str) -> str:
    return who[:1].upper() + who[1:]


def adapter_check(
    model: NextToken, *, seed: int, texts: Sequence[Sequence[int]] | None = None
) -> claims.Check | None:
    """The check "different" of an adapter against its own base, which is the same model without it.

    Args:
        model: of any kind.
        seed: of the texts that it samples.
        texts: tokens to read instead.

    Returns:
        None where the model is no adapter: nothing is known of what it was before.
    """
    disabled = getattr(getattr(model, "network", None), "disable_adapter", None)
    if disabled is None:
        return None
    try:
        read = samples_of(model, seed=seed) if texts is None else texts
    except NotFinite:
        return claims.Check("different", "could not run", "The adapter has no finite scores.")
    if not read:
        return claims.Check("different", "could not run", "The adapter generates too few texts.")
    own = np.concatenate(log_probs_of(model, read))
    with disabled():
        base = np.concatenate(log_probs_of(model, read))
    found = claims.different(base, own)
    if found.state == "failed" and found.prevents(claims.LEAK):
        return replace(found, sentence="The adapter changes nothing: base and adapter agree.")
    return replace(found, sentence=found.sentence.replace("models", "adapter and its base"))


def pair_checks(
    before: NextToken,
    after: NextToken,
    *,
    seed: int,
    names: tuple[str, str] = ("BEFORE", "AFTER"),
    finding: bool = False,
) -> tuple[claims.Check, ...]:
    """The checks "alive", of both, and "different", on texts that both models sample."""
    models = (before, after)
    alive = tuple(
        alive_by_samples(model, seed=seed, who=name)
        for model, name in zip(models, names, strict=True)
    )
    if any(check.state != "passed" for check in alive):
        dead = claims.Check("different", "could not run", "A model is too weak to compare.")
        if any(check.state == "failed" for check in alive):
            return (*alive, dead)
    texts = [
        text
        for number, one in enumerate(models)
        for text in samples_of(one, seed=number, readers=models)
    ]
    own, other = (np.concatenate(log_probs_of(model, texts)) for model in models)
    return (*alive, claims.different(own, other, finding=finding))
