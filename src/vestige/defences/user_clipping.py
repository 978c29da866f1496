"""User-level clipping: all sequences of a user clipped as one.

McMahan et al. (2018), "Learning Differentially Private Recurrent Language Models", protect users;
Mireshghallah et al. (2021), section 3, say that theirs is user-level, too. A user's gradient is the
sum of those of all their sequences, so that a plain backward pass for each user gives it, for any
model.

Differs from McMahan et al.: one gradient in place of a local training (`dp_fedavg` is that).
"""

from collections.abc import Iterator

import torch

from vestige.defences.clipping import (
    ClipFn,
    Clipped,
    Rule,
    numbers_of,
    summed_losses,
    trainable,
)
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch


def by_user(batch: Batch) -> Iterator[Batch]:
    """Each user's rows by themselves, users by ascending id.

    Raises:
        ValueError: the batch does not say whose its rows are.
    """
    if batch.users is None:
        raise ValueError("batch must say whose each row is, got users=None")
    for user in torch.unique(batch.users):
        yield batch.select((batch.users == user).nonzero().flatten())


def clip_users(rows_at_once: int | None) -> ClipFn:
    """A `ClipFn` whose units are users.

    Args:
        rows_at_once: sequences of one user that are computed together; None: all.
    """

    def clip(model: LanguageModel, batch: Batch, rule: Rule) -> Clipped:
        learning = trainable(model)
        total = [parameter.grad for parameter in learning]
        norms, loss = [], torch.zeros((), device=batch.inputs.device)
        for own in by_user(batch):
            for parameter in learning:
                parameter.grad = None
            every = torch.arange(len(own.inputs), device=own.inputs.device)
            with rule.alone(numbers_of(own)):
                for rows in torch.split(every, rows_at_once or len(every)):
                    summed = summed_losses(model, own.select(rows)).sum()
                    (summed / rule.tokens_per_sequence).backward()  # type: ignore[no-untyped-call]
                    loss += summed.detach()
            gradients = [p.grad for p in learning]
            norm = torch.nn.utils.get_total_norm([g for g in gradients if g is not None])
            norms.append(norm)
            weight = rule.weights(norm).item()
            for summed_up, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    summed_up.add_(gradient, alpha=weight)
        for parameter, summed_up in zip(learning, total, strict=True):
            parameter.grad = summed_up
        return Clipped(torch.stack(norms), loss)

    return clip
