"""Accuracy with which a fresh discriminator identifies authors from a frozen model.

The adversarial defence trains a discriminator to fail. What counts is a discriminator that the
model was not trained against (Elazar and Goldberg 2018, "Adversarial Removal of Demographic
Attributes from Text Data"). It is compared with a bag of words: if that finds no author, there was
nothing to hide.

The hidden states are standardised first: a collapsed state looks private and is not.
"""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.data.encoded import EncodedCorpus
from vestige.defences.regularizers import Discriminator
from vestige.metrics.estimates import clopper_pearson
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.training.sequences import Sequences
from vestige.training.steps import last_hidden


@dataclass(frozen=True, kw_only=True)
class AuthorProbe:
    """Scores on held-out `sequences` of `users`.

    The accuracy of a fresh discriminator with Clopper and Pearson's interval, the share of the
    commonest author, and the accuracy of a logistic regression on word counts.
    """

    accuracy: float
    low: float
    high: float
    chance: float
    bag_of_words: float
    sequences: int
    users: int

    def summary(self) -> dict[str, float]:
        """All values, their names with a prefix."""
        return {f"probe_{name}": value for name, value in asdict(self).items()}


def probe_authors(
    model: LanguageModel,
    data: EncodedCorpus,
    *,
    sequence_length: int,
    epochs: int = 20,
    held_out: float = 0.3,
    seed: int,
) -> AuthorProbe:
    """Train a fresh discriminator on the input of the frozen model's head.

    Pieces of documents have at most `sequence_length` tokens; `held_out` is the share of documents
    for testing.
    """
    sequences = Sequences.of(data, length=sequence_length)
    assert sequences.users is not None
    test_documents = np.random.default_rng(seed).random(len(data)) < held_out
    test = test_documents[sequences.documents]
    states, users = last_states(model, sequences), torch.from_numpy(sequences.users)
    mean, deviation = states[~test].mean(0), states[~test].std(0).clamp_min(1e-6)
    states = (states - mean) / deviation
    discriminator = _fit(states[~test], users[~test], epochs, seed)
    with torch.no_grad():
        correct = int((discriminator(states[test]).argmax(1) == users[test]).sum())
    total = int(test.sum())
    low, high = clopper_pearson(correct, total)
    return AuthorProbe(
        accuracy=correct / total,
        low=low,
        high=high,
        chance=float(np.bincount(sequences.users[test]).max() / total),
        bag_of_words=_bag_of_words(sequences, test, len(model.vocabulary), seed),
        sequences=total,
        users=len(np.unique(sequences.users)),
    )


@torch.no_grad()
def last_states(model: LanguageModel, sequences: Sequences, *, rows: int = 256) -> Tensor:
    """(n, h) float32 on the CPU: the input of the model's head after each sequence's last token."""
    assert isinstance(model, TwoParts)
    was_training = model.training
    model.eval()
    states = []
    for begin in range(0, len(sequences), rows):
        indices = np.arange(begin, min(begin + rows, len(sequences)))
        batch = sequences.batch(indices, model.first_token, model.device)
        states.append(last_hidden(model.body(batch.inputs)[0], batch).float().cpu())
    model.train(was_training)
    return torch.cat(states)


def _fit(states: Tensor, users: Tensor, epochs: int, seed: int) -> Discriminator:
    discriminator = Discriminator(states.shape[1], int(users.max()) + 1, seed=seed)
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, weight_decay=1e-4)
    rng = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(states), generator=rng), 100):
            optimizer.zero_grad()
            logits = discriminator(states[batch])
            torch.nn.functional.cross_entropy(logits, users[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return discriminator


def _bag_of_words(sequences: Sequences, test: NDArray[np.bool_], words: int, seed: int) -> float:
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

    rows = np.repeat(np.arange(len(sequences)), sequences.lengths)
    positions = np.arange(len(rows)) - np.repeat(
        np.cumsum(sequences.lengths) - sequences.lengths, sequences.lengths
    )
    tokens, users = sequences.data.tokens[sequences.starts[rows] + positions], sequences.users
    assert users is not None
    counts = csr_matrix((np.ones(len(rows)), (rows, tokens)), (len(sequences), words))
    classifier = SGDClassifier(loss="log_loss", max_iter=20, tol=None, random_state=seed)
    classifier.fit(counts[~test], users[~test])
    return float(classifier.score(counts[test], users[test]))
