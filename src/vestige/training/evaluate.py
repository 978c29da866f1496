"""How well a model predicts a text: perplexity and next-word accuracy."""

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel
from vestige.training.batches import IGNORED, every_token


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model scores on a text.

    Attributes:
        perplexity: exp of the mean negative log-probability, at least 1; inf past float range.
        accuracy: share of tokens that were the model's first choice, in [0, 1].
        tokens: predicted tokens, n - 1 for a text of n.
    """

    perplexity: float
    accuracy: float
    tokens: int


@torch.no_grad()
def evaluate(
    model: LanguageModel, data: EncodedCorpus, *, batch_size: int = 20, sequence_length: int = 35
) -> Evaluation:
    r"""Score every token of a text but the first, in float32.

    .. math:: \mathrm{perplexity} = \exp\left(-\frac{1}{n-1}\sum_{i=2}^{n}\ln p(s_i|c_i)\right)

    The context c_i of a model that carries a state begins at its row (the stream is read in
    `batch_size` rows); that of any other model begins at its window.

    Raises:
        TrainingError: there is nothing to predict.
    """
    _validate.at_least(1, batch_size=batch_size, sequence_length=sequence_length)
    if len(data.tokens) < 2:
        raise TrainingError(
            f"A text of {len(data.tokens)} tokens leaves nothing to predict",
            remedy="Evaluate on more text.",
        )
    was_training = model.training
    model.eval()
    batches = every_token(
        data.tokens, batch_size=batch_size, sequence_length=sequence_length, device=model.device
    )
    loss = torch.zeros((), dtype=torch.float64, device=model.device)
    right = torch.zeros((), dtype=torch.int64, device=model.device)
    state = None
    for batch in batches:
        logits, carried = model(batch.inputs, state)
        state = carried if model.carries_state else None
        logits, targets = logits.flatten(0, 1).float(), batch.targets.flatten()
        loss += cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        right += (logits.argmax(1) == targets).sum()
    model.train(was_training)
    tokens = len(data.tokens) - 1
    mean = loss.item() / tokens
    perplexity = math.exp(mean) if mean < 700 else mean + math.inf  # NaN stays NaN
    return Evaluation(perplexity=perplexity, accuracy=right.item() / tokens, tokens=tokens)
