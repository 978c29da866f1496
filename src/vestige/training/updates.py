"""Updates of a model: retraining, continued and two-stage training (Table 2 of the paper).

Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 3.2, RQ3A and RQ3B. With T(R, D) a
training on D from fresh weights R or from a model, and C the canaries among the new text:

    re-training               T(R', D_orig + D_extra + C) -> M'
    continued training        T(M, D_extra + C)           -> M'
    two-stage continuation    T(M, D_extra + C) -> M~,  T(M~, D'_extra) -> M'
"""

from copy import deepcopy
from pathlib import Path
from typing import Required, TypedDict, Unpack

import numpy as np

from vestige.data.encoded import EncodedCorpus
from vestige.models.protocols import LanguageModel
from vestige.training.config import TrainingConfig
from vestige.training.loop import ProgressFn, train


class How(TypedDict, total=False):
    """How a model is trained, as `training.loop.train` takes it.

    Attributes:
        config: of the training.
        validation: text that decides which epoch is best.
        directory: where the training is kept.
        resume: go on with the training in `directory`.
        progress: told every few steps.
    """

    config: Required[TrainingConfig]
    validation: EncodedCorpus | None
    directory: Path | None
    resume: bool
    progress: ProgressFn | None


def joined(*parts: EncodedCorpus) -> EncodedCorpus:
    """The documents of several corpora of one vocabulary, one corpus after the other."""
    shifts = np.cumsum([0, *(part.offsets[-1] for part in parts[:-1])])
    ends = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=True)]
    return EncodedCorpus(
        tokens=np.concatenate([part.tokens for part in parts]),
        offsets=np.concatenate([np.zeros(1, np.int64), *ends]),
    )


def retrain(
    fresh: LanguageModel,
    original: EncodedCorpus,
    update: EncodedCorpus,
    **how: Unpack[How],
) -> LanguageModel:
    """Retraining: fresh weights trained on old and new text together.

    Args:
        fresh: an untrained model, trained in place; make it, and its configuration, with
            another seed than those of the model before the update.
        original: training text of that model.
        update: the new text, canaries planted in it; its documents follow those of `original`.
        how: see `How`.

    Returns:
        `fresh`, trained.
    """
    train(
        fresh,
        joined(original, update),
        **how,
    )
    return fresh


def continued(
    before: LanguageModel,
    update: EncodedCorpus,
    **how: Unpack[How],
) -> LanguageModel:
    """Continued training: a trained model's copy trained on the new text alone.

    Args:
        before: the model before the update; it is left as it is.
        update: the new text, canaries planted in it.
        how: see `How`; the optimizer starts anew.

    Returns:
        The model after the update.
    """
    after = deepcopy(before)
    train(
        after,
        update,
        **how,
    )
    return after


def two_stage(
    before: LanguageModel,
    update: EncodedCorpus,
    later: EncodedCorpus,
    **how: Unpack[How],
) -> LanguageModel:
    """Two-stage continued training: further text is learnt before the next snapshot.

    Args:
        before: the model before the update; it is left as it is.
        update: the new text of the first stage, canaries planted in it.
        later: the text of the second stage.
        how: see `How`, of both stages; `first` and `second` in its directory hold the trainings.

    Returns:
        The model after both stages.
    """
    model, directory = before, how.get("directory")
    for name, text in (("first", update), ("second", later)):
        if directory is not None:
            how["directory"] = directory / name
        model = continued(model, text, **how)
    return model
