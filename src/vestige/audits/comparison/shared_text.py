"""The test text and the users that compared trainings share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.audits.comparison.trainings import TrainedModel
    from vestige.data.corpus import Corpus
    from vestige.data.encoded import EncodedCorpus


def shared_text(
    trainings: "Sequence[TrainedModel]", test: "Corpus | None"
) -> "tuple[EncodedCorpus | None, list[str]]":
    """The text that measures utility: the one given, or the validation text of all trainings.

    Returns:
        (the text encoded, or None; notes).
    """
    from vestige.data.encoded import encode

    if test is not None:
        return encode(test, trainings[0].model.vocabulary), []
    held = {one.held_out for one in trainings}
    if len(held) == 1 and None not in held:
        encoded = trainings[0].encoded("validation")
        if encoded is not None:
            return encoded, [
                "Utility was measured on the validation text, which also decided which weights "
                "were kept. Give other text with --test."
            ]
    return None, [
        "Utility and fairness were not measured: the trainings have no common validation text; "
        "give --test."
    ]


def user_samples(
    trainings: "Sequence[TrainedModel]", baseline: str, test: "EncodedCorpus | None"
) -> "tuple[NDArray[np.int64] | None, list[str]]":
    """Number of training documents of each user of the test text.

    Returns:
        ((u,) numbers, or None; a note if the users are unknown).
    """
    import numpy as np

    if test is None:
        return None, []
    if test.users is None:
        return None, [
            "Fairness between users was not measured: the test text has no users; give --test "
            "with --user."
        ]
    for one in sorted(trainings, key=lambda one: one.name != baseline):
        data = one.encoded("training")
        if data is not None and data.users is not None:
            counts = np.bincount(data.users, minlength=len(data.names))
            known = dict(zip(data.names, counts.tolist(), strict=True)) | {"": 0}
            return np.array([known.get(name, 0) for name in test.names], np.int64), []
    return None, [
        "Fairness between users was not measured: no training recorded users; train with --user."
    ]


def frequency_perplexity_of(one: "TrainedModel", test: "EncodedCorpus") -> float | None:
    """Perplexity of the test text under word frequencies of the training text, if that is kept."""
    from vestige.training.word_frequencies import frequency_perplexity

    data = one.encoded("training")
    if data is None:
        return None
    return frequency_perplexity(data, test, size=len(one.model.vocabulary))
