"""Trainings kept in directories: begun, resumed, or found finished."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Protocol

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import Vocabulary
from vestige.data.writing import alone
from vestige.models.checkpoints import load_model
from vestige.models.protocols import LanguageModel
from vestige.training.config import TrainingConfig
from vestige.training.history import StopFn
from vestige.training.loop import train
from vestige.training.run import ObserveFn, ProgressFn
from vestige.training.steps import StepFn

Fresh = Callable[[], LanguageModel]
"""Makes an untrained model."""


class Defending(Protocol):
    """Defence as the maker of a training's step."""

    def step(
        self, model: LanguageModel, data: EncodedCorpus, config: TrainingConfig
    ) -> StepFn | None:
        """The step for a model and its data; None for a plain one."""


def snapshot(  # noqa: PLR0913 - a defence, a stop and a watcher come on top of seven
    directory: Path,
    corpus: Corpus,
    *,
    start: Fresh | LanguageModel,
    base: LanguageModel | None = None,
    vocabulary: Vocabulary,
    config: TrainingConfig,
    validation: Corpus | None = None,
    defence: Defending | None = None,
    stop: StopFn | None = None,
    observe: ObserveFn | None = None,
    progress: ProgressFn | None = None,
) -> LanguageModel:
    """Model trained on a corpus, on its device.

    An interrupted training goes on; a finished one is loaded. No two processes train one.

    Args:
        directory: the training's own; its `data` holds the encoded corpus.
        corpus: training text.
        start: makes the untrained model, or is the model to continue (left as it is).
        base: of an adapter: its base, whose weights the model shares; None: read it again.
        vocabulary: of the token ids.
        config: how.
        validation: decides which epoch is kept.
        defence: under which it learns.
        stop: see `training.loop.train`, as `observe` and `progress`.
    """
    model = deepcopy(start) if isinstance(start, LanguageModel) else start()
    with alone(directory):
        data = encode(corpus, vocabulary, directory / "data")
        train(
            model,
            data,
            validation=None if validation is None else encode(validation, vocabulary),
            config=config,
            directory=directory,
            step=None if defence is None else defence.step(model, data, config),
            stop=stop,
            observe=observe,
            resume=True,
            progress=progress,
        )
    return load_model(directory, base=base)
