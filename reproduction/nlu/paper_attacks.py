r"""The attacks of the paper: gradient descent over mixtures of candidate words, and over vectors.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models". The
main attack (equations 1 to 3 and appendix B): an unknown word is a softmax over its candidates, its
vector their weighted sum,

.. math:: a_{i,v} = \frac{e^{z_{i,v}/T}}{\sum_j e^{z_{i,j}/T}}, \quad e'_{u_i} = W^T a_i,
    \quad T_t = 0.997^t / 10

and only the logits z are optimized (Adam, 250 epochs, 6.5e-3 falling by 0.995 an epoch). The
trivial attack (section 3.1): vectors start at random, and each becomes the word with the nearest
vector.

Differs from the paper: the paper does not state the initial z, which decides the attack, since all
steps together change a logit by less than 1. We start from zero, the strongest reading in our
measurements; starts from N(0, 1) have almost chosen before they move. The paper gives no settings
for the trivial attack: vectors start from a normal distribution with the candidates' mean and
spread in each dimension, and the nearest word is sought among the candidates, not in the whole
vocabulary, which makes it stronger. All trials are one batch with one backward pass per step.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from vestige.audits.extraction.objective import ExtractionObjective
from vestige.audits.extraction.searches import Candidates, Progress, Search, best_of_tried

EPOCHS, LEARNING_RATE, DECAY = 250, 6.5e-3, 0.995
TEMPERATURE, COOLING = 0.1, 0.997


def discrete_optimization(
    objective: ExtractionObjective,
    rng: torch.Generator,
    progress: Progress | None = None,
    *,
    epochs: int = EPOCHS,
) -> Candidates:
    """The most probable words, with their own loss; logits start from zero."""
    logits = objective.candidate_vectors.new_zeros((objective.trials, 1, *objective.mask.shape))
    logits = logits.masked_fill(~objective.mask, -torch.inf)

    def loss(z: Tensor, epoch: int) -> Tensor:
        temperature = TEMPERATURE * COOLING**epoch
        return soft_losses(objective, (z / temperature).softmax(-1)).sum()

    choices = _descend(logits, loss, epochs, progress).argmax(-1)
    return best_of_tried(objective, choices, objective.losses(choices), gradients=epochs)


def embedding_optimization(
    objective: ExtractionObjective,
    rng: torch.Generator,
    progress: Progress | None = None,
    *,
    epochs: int = EPOCHS,
) -> Candidates:
    """The candidates nearest to optimized vectors, with their own loss."""
    share = (objective.mask / objective.mask.sum(1, keepdim=True)).to(objective.candidate_vectors)
    mean = torch.einsum("nc,rncd->rnd", share, objective.candidate_vectors)
    square = torch.einsum("nc,rncd->rnd", share, objective.candidate_vectors**2)
    spread = (square - mean**2).clamp_min(0).sqrt()
    noise = torch.randn((1, *mean.shape[1:]), generator=rng).to(mean)
    start = mean[:, None] + noise * spread[:, None]
    vectors = _descend(start, lambda v, _: objective.vector_losses(v).sum(), epochs, progress)
    choices = nearest(objective, vectors)
    return best_of_tried(objective, choices, objective.losses(choices), gradients=epochs)


ATTACKS: Mapping[str, Search] = {
    "paper": discrete_optimization,
    "embedding": embedding_optimization,
}


def soft_losses(objective: ExtractionObjective, weights: Tensor) -> Tensor:
    """Losses (trials, k) of weights (trials, k, n, c) over candidates; differentiable.

    Weights of padded candidates must be 0.
    """
    vectors = torch.einsum("rknc,rncd->rknd", weights, objective.candidate_vectors)
    return objective.vector_losses(vectors)


def nearest(objective: ExtractionObjective, vectors: Tensor) -> Tensor:
    """Indices (trials, k, n) of the candidates nearest to vectors (trials, k, n, d)."""
    distance = torch.cdist(
        vectors.transpose(1, 2), objective.candidate_vectors
    )  # (trials, n, k, c)
    return distance.masked_fill(~objective.mask[:, None], torch.inf).argmin(-1).transpose(1, 2)


def _descend(
    start: Tensor,
    loss: Callable[[Tensor, int], Tensor],
    epochs: int,
    progress: Progress | None,
) -> Tensor:
    """Minimize the summed loss of an epoch by Adam."""
    values = start.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([values], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)
    for epoch in range(epochs):
        optimizer.zero_grad()
        # cuDNN's recurrent layers refuse a backward pass outside of training
        with torch.backends.cudnn.flags(enabled=False):
            total = loss(values, epoch)
        # the model's own parameters get no gradient
        total.backward(inputs=[values])  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if progress:
            progress(epoch + 1, epochs)
    return values.detach()
