"""What a model says of every token of some texts: all that membership scores are made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige import _validate
from vestige.models.largest import largest
from vestige.models.protocols import LanguageModel, require_evaluation

LOGITS = 2**25
"""Of a batch, at most (or those of one text)."""

NOTHING = -200.0
"""Log-probability under which a probability is 0 in float32."""

_COLUMNS = ("log_probs", "ranks", "means", "deviations", "likeliest", "likeliest_log_probs")


@dataclass(frozen=True, kw_only=True)
class TokenStatistics:
    """What a model says of every token of n texts, t tokens in all.

    Attributes:
        offsets: (n + 1,) int64; text i has the tokens offsets[i] to offsets[i + 1].
        tokens: (t,) int32 ids.
        log_probs: (t,) float32, natural, of each token given those before it and the beginning.
        ranks: (t,) int32, 0 for the likeliest; ties by id.
        means, deviations: (t,) float32, of the log-probability of the next token under the
            distribution itself.
        likeliest, likeliest_log_probs: (t, k) int32 and float32, the k likeliest tokens.
    """

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    ranks: NDArray[np.int32]
    means: NDArray[np.float32]
    deviations: NDArray[np.float32]
    likeliest: NDArray[np.int32]
    likeliest_log_probs: NDArray[np.float32]


@torch.no_grad()
def token_statistics(
    model: LanguageModel,
    texts: Sequence[Sequence[int]],
    *,
    likeliest: int = 20,
    progress: Callable[[int, int], object] | None = None,
) -> TokenStatistics:
    """Statistics of every token, texts of like length in one forward pass.

    Args:
        model: in evaluation mode.
        texts: ids of each, at least one, and no more than the model reads at once.
        likeliest: k, of the likeliest tokens; at most as many as there are outputs are kept.
        progress: told (tokens done, tokens in all).

    Raises:
        ValueError: there is no text, one is empty or too long, or dropout is on.
    """
    _validate.at_least(1, likeliest=likeliest, texts=len(texts))
    require_evaluation(model)
    lengths = np.array([len(ids) for ids in texts], dtype=np.int64)
    _validate.at_least(1, **{"tokens of a text": int(lengths.min())})
    found: list[dict[str, NDArray[np.generic]]] = [{} for _ in texts]
    done = 0
    for batch in _batches(lengths, model.vocab_size):
        rows = torch.full((len(batch), int(lengths[batch].max()) + 1), model.first_token)
        for row, place in enumerate(batch):
            rows[row, 1 : len(texts[place]) + 1] = torch.as_tensor(texts[place])
        rows = rows.to(model.device)
        logits = model(rows[:, :-1])[0]
        for row, place in enumerate(batch):
            length = len(texts[place])
            told = _of_tokens(logits[row, :length], rows[row, 1 : length + 1], likeliest)
            found[place] = {name: told[name].cpu().numpy() for name in _COLUMNS}
            done += length
        if progress is not None:
            progress(done, int(lengths.sum()))
    return TokenStatistics(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        tokens=np.concatenate([np.asarray(ids, dtype=np.int32) for ids in texts]),
        **{name: np.concatenate([one[name] for one in found]) for name in _COLUMNS},
    )


def _of_tokens(logits: Tensor, tokens: Tensor, k: int) -> dict[str, Tensor]:
    """Statistics (t,) of tokens (t,), whose logits are (t, v)."""
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    own = log_probs.gather(1, tokens[:, None])
    chances, known = log_probs.exp(), log_probs.clamp(min=NOTHING)
    means = torch.linalg.vecdot(chances, known)
    spread = torch.linalg.vecdot(chances, known.sub_(means[:, None]).square_())
    first = largest(log_probs, min(k, log_probs.shape[1]))
    return {
        "log_probs": own[:, 0],
        "ranks": _ranks(log_probs, own, tokens),
        "means": means,
        "deviations": spread.sqrt(),
        "likeliest": first.int(),
        "likeliest_log_probs": log_probs.gather(1, first),
    }


def _ranks(log_probs: Tensor, own: Tensor, tokens: Tensor) -> Tensor:
    """Ranks (t,) of tokens, whose own log-probabilities are (t, 1)."""
    ranks = (log_probs > own).sum(1, dtype=torch.int32)
    alike = log_probs == own
    for row in (alike.sum(1, dtype=torch.int32) > 1).nonzero()[:, 0].tolist():
        ranks[row] += alike[row, : int(tokens[row])].sum(dtype=torch.int32)
    return ranks


def _batches(lengths: NDArray[np.int64], outputs: int) -> list[list[int]]:
    """Places of texts of like length, whose padded logits fit."""
    batches: list[list[int]] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        padded = (len(batches[-1]) + 1) * int(lengths[place]) * outputs if batches else LOGITS + 1
        if padded > LOGITS:
            batches.append([])
        batches[-1].append(place)
    return batches
