"""Updates of a model: retraining, continued and two-stage training (Table 2 of the paper).

Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 3.2, RQ3A and RQ3B. With T(R, D) a
training on D from fresh weights R or from a model, and C the canaries among the new text:

    re-training               T(R', D_orig + D_extra + C) -> M'
    continued training        T(M, D_extra + C)           -> M'
    two-stage continuation    T(M, D_extra + C) -> M~,  T(M~, D'_extra) -> M'
"""

from copy import deepcopy
from pathlib import Path

import numpy as np

from vestige.data.encoded import EncodedCorpus
from vestige.models.protocols import LanguageModel
from vestige.training.config import TrainingConfig
from vestige.training.loop import ProgressFn, train


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
    *,
    config: TrainingConfig,
    validation: EncodedCorpus | None = None,
    directory: Path | None = None,
    resume: bool = False,
    progress: ProgressFn | None = None,
) -> LanguageModel:
    """Retraining: fresh weights trained on old and new text together.

    Args:
        fresh: an untrained model, trained in place; make it, and `config`, with another seed
            than those of the model before the update.
        original: training text of that model.
        update: the new text, canaries planted in it; its documents follow those of `original`.
        config: how.
        validation: text that decides which epoch is best.
        directory: where the training is kept.
        resume: go on with the training in `directory`.
        progress: told every few steps.

    Returns:
        `fresh`, trained.
    """
    train(
        fresh,
        joined(original, update),
        config=config,
        validation=validation,
        directory=directory,
        resume=resume,
        progress=progress,
    )
    return fresh


def continued(
    before: LanguageModel,
    update: EncodedCorpus,
    *,
    config: TrainingConfig,
    validation: EncodedCorpus | None = None,
    directory: Path | None = None,
    resume: bool = False,
    progress: ProgressFn | None = None,
) -> LanguageModel:
    """Continued training: a trained model's copy trained on the new text alone.

    Args:
        before: the model before the update; it is left as it is.
        update: the new text, canaries planted in it.
        config: how; the optimizer starts anew.
        validation: text that decides which epoch is best.
        directory: where the training is kept.
        resume: go on with the training in `directory`.
        progress: told every few steps.

    Returns:
        The model after the update.
    """
    after = deepcopy(before)
    train(
        after,
        update,
        config=config,
        validation=validation,
        directory=directory,
        resume=resume,
        progress=progress,
    )
    return after


def two_stage(
    before: LanguageModel,
    update: EncodedCorpus,
    later: EncodedCorpus,
    *,
    config: TrainingConfig,
    validation: EncodedCorpus | None = None,
    directory: Path | None = None,
    resume: bool = False,
    progress: ProgressFn | None = None,
) -> LanguageModel:
    """Two-stage continued training: further text is learnt before the next snapshot.

    Args:
        before: the model before the update; it is left as it is.
        update: the new text of the first stage, canaries planted in it.
        later: the text of the second stage.
        config: how, in both stages.
        validation: text that decides which epoch of each stage is best.
        directory: its `first` and `second` hold the two trainings.
        resume: go on where the two trainings in `directory` stopped.
        progress: told every few steps of either stage.

    Returns:
        The model after both stages.
    """
    model = before
    for name, text in (("first", update), ("second", later)):
        model = continued(
            model,
            text,
            config=config,
            validation=validation,
            directory=None if directory is None else directory / name,
            resume=resume,
            progress=progress,
        )
    return model
