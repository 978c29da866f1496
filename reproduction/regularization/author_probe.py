"""Accuracy with which a fresh discriminator identifies authors from a frozen model.

The adversarial defence shows a discriminator that it beat; what counts is one that it has never
met (Elazar and Goldberg 2018, "Adversarial Removal of Demographic Attributes from Text Data").
It is compared with what words alone give away: where a bag of words finds no author, there was
nothing to hide.

The hidden states are standardised first: a collapsed state looks private and is not.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.defences.regularizers import Discriminator
from vestige.errors import TrainingError
from vestige.metrics.estimates import clopper_pearson
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.training.sequences import Sequences
from vestige.training.steps import last_hidden


@dataclass(frozen=True, kw_only=True)
class AuthorProbe:
    """What a fresh discriminator reached on `sequences` that it was not trained on, among `users`:
    accuracy with the ends of Clopper and Pearson's interval, the share of the commonest author, and
    the accuracy of a logistic regression on word counts.
    """

    accuracy: float
    low: float
    high: float
    chance: float
    bag_of_words: float
    sequences: int
    users: int

    def summary(self) -> dict[str, float]:
        """All of it, under names that tell it apart."""
        return {f"probe_{name}": value for name, value in asdict(self).items()}


def probe_authors(
    model: LanguageModel,
    data: EncodedCorpus,
    *,
    sequence_length: int,
    epochs: int = 20,
    held_out: float = 0.3,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> AuthorProbe:
    """Train a fresh discriminator on what the frozen model's head reads.

    Pieces of documents have `sequence_length` tokens at most; a share of the documents, `held_out`,
    is tested. `progress` is called with (epoch, epochs). TrainingError if the documents have fewer
    than two users, are too few to be split, or the model hides its states.
    """
    _validate.at_least(1, epochs=epochs)
    _validate.positive(held_out=held_out)
    _validate.fraction(held_out=held_out)
    sequences = Sequences.of(data, length=sequence_length)
    if sequences.users is None or len(np.unique(sequences.users)) < 2:
        raise TrainingError(
            "The author probe needs documents of two users or more",
            remedy="Pass the user column with --user.",
        )
    tested = np.random.default_rng(seed).random(len(data)) < held_out
    test = tested[sequences.documents]
    if not test.any() or len(np.unique(sequences.users[~test])) < 2:
        raise TrainingError(
            f"held_out {held_out:g} of {len(data)} documents leaves too few for training or "
            "testing",
            remedy="Pass more documents, or hold out another share.",
        )
    states, users = last_states(model, sequences), torch.from_numpy(sequences.users)
    mean, deviation = states[~test].mean(0), states[~test].std(0).clamp_min(1e-6)
    states = (states - mean) / deviation
    discriminator = _fit(states[~test], users[~test], epochs, seed, progress)
    with torch.no_grad():
        right = int((discriminator(states[test]).argmax(1) == users[test]).sum())
    total = int(test.sum())
    low, high = clopper_pearson(right, total)
    return AuthorProbe(
        accuracy=right / total,
        low=low,
        high=high,
        chance=float(np.bincount(sequences.users[test]).max() / total),
        bag_of_words=_bag_of_words(sequences, test, len(model.vocabulary), seed),
        sequences=total,
        users=len(np.unique(sequences.users)),
    )


@torch.no_grad()
def last_states(model: LanguageModel, sequences: Sequences, *, rows: int = 256) -> Tensor:
    """(n, h) float32 on the CPU: what the model's head reads after each sequence's last token."""
    if not (isinstance(model, TwoParts) and model.separate_head):
        raise TrainingError(
            "The model does not expose the input of its head",
            remedy="Pass an LSTM, Transformer, GPT-2, Llama or similar model.",
        )
    was_training = model.training
    model.eval()
    found = []
    for begin in range(0, len(sequences), rows):
        chosen = np.arange(begin, min(begin + rows, len(sequences)))
        batch = sequences.batch(chosen, model.first_token, model.device)
        found.append(last_hidden(model.body(batch.inputs)[0], batch).float().cpu())
    model.train(was_training)
    return torch.cat(found)


def _fit(
    states: Tensor,
    users: Tensor,
    epochs: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> Discriminator:
    discriminator = Discriminator(states.shape[1], int(users.max()) + 1, seed=seed)
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        for chosen in torch.split(torch.randperm(len(states), generator=generator), 100):
            optimizer.zero_grad()
            logits = discriminator(states[chosen])
            torch.nn.functional.cross_entropy(logits, users[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if progress is not None:
            progress(epoch + 1, epochs)
    return discriminator


def _bag_of_words(sequences: Sequences, test: NDArray[np.bool_], words: int, seed: int) -> float:
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

    rows = np.repeat(np.arange(len(sequences)), sequences.lengths)
    within = np.arange(len(rows)) - np.repeat(
        np.cumsum(sequences.lengths) - sequences.lengths, sequences.lengths
    )
    tokens, users = sequences.data.tokens[sequences.starts[rows] + within], sequences.users
    assert users is not None
    counts = csr_matrix((np.ones(len(rows)), (rows, tokens)), (len(sequences), words))
    classifier = SGDClassifier(loss="log_loss", max_iter=20, tol=None, random_state=seed)
    classifier.fit(counts[~test], users[~test])
    return float(classifier.score(counts[test], users[test]))
