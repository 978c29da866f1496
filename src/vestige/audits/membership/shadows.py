"""Shadow models: models trained like the target, with known members.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", arXiv:1811.00513,
Algorithm 1. For audits of texts they are fine-tunes of the base; for audits of users they are
trained from scratch. The two models of a pair are trained on the two halves of the texts. A
finished model is loaded; an interrupted training resumes.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from vestige import results
from vestige.arguments import ModelLike
from vestige.audits.membership.membership import TRAINING_OPTIONS, ShadowOptions
from vestige.audits.membership.user_inputs import Target, UserInputs
from vestige.data.corpus import Corpus
from vestige.errors import RunError
from vestige.models.checkpoints import load_model
from vestige.models.folders import model_folder
from vestige.models.protocols import LanguageModel, choose_device
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.models.snapshots import base_of_adapter
from vestige.models.transformer import TransformerConfig
from vestige.monitor import Monitor
from vestige.parallel import map_cluster, map_processes
from vestige.preparation.trained import RUN
from vestige.training.checkpoint import start_of
from vestige.training.config import TrainingConfig
from vestige.training.directory import IDENTITY
from vestige.training.presets import preset_of
from vestige.training.recipe import ForeignTraining, Recipe, adapter_in, usual_config
from vestige.training.shadow_jobs import ShadowPlan, other_shapes, shadow_jobs
from vestige.training.shadows import Shadow, keep_shadow, train_shadow_away, train_shadows
from vestige.training.steps import settled

if TYPE_CHECKING:
    from vestige.session import Session

DEFAULT_SHADOWS = 4
"""Shadow models of an audit of texts, if `shadows` is not given."""
SHADOW_CONFIGS = LSTMConfig | GRUConfig | TransformerConfig | Seq2SeqConfig
"""Architectures of shadow models in audits of users."""
PLAIN_BATCHES = ("stream", "documents", "users")
"""Batchings that shadow models can repeat; a defence's batches are random samples."""
TRAINED_COUNT = "shadow models trained"
"""Key in the store."""


@contextmanager
def shadow_folder(run: "Session") -> Iterator[Path]:
    """The folder of shadow models; a temporary one if the run has no folder."""
    if folder := run.output_folder("shadows", run.arguments["shadows"].shadow_dir):
        yield folder
    else:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)


@dataclass(frozen=True)
class ShadowModel:
    """A trained shadow model of texts.

    Attributes:
        directory: its folder.
        model: in evaluation mode.
        members: positions of the texts that it was trained on.
    """

    directory: Path
    model: LanguageModel
    members: tuple[int, ...]


def shadow_models(
    target: ModelLike | None,
    base: ModelLike | None,
    texts: Corpus,
    options: ShadowOptions,
    *,
    folder: Path,
    seed: int,
    device: str,
    monitor: Monitor,
) -> Iterator[ShadowModel]:
    """Train or load the shadow models of an audit of texts; one is in memory at a time.

    Args:
        target: model whose known training settings are repeated, with an adapter of the same
            shape or with all weights; None: a served model.
        base: model to start from; None: the base of the adapter `target`.
        texts: like the target's training data, but not in it.
        options: how many, and changes of the training.
        folder: has a folder for each model, named by a hash of its inputs.
        seed: of the halves and of the trainings.

    Raises:
        TrainingError: the target did not start from the base, or was trained with a defence.
    """
    start_from = base or (None if target is None else base_of_adapter(target))
    if start_from is None:
        raise ValueError("`shadow_texts` needs `base`: shadow models are fine-tunes of it")
    if isinstance(start_from, str | PathLike):
        start_from = load_model(fspath(start_from), device=device)
    loaded = start_from.eval()
    recipe = _recipe(target, loaded, options, monitor)
    count, order = options.shadows or DEFAULT_SHADOWS, np.arange(0)
    for index in range(count):
        if index % 2 == 0:
            order = np.random.default_rng([seed, index]).permutation(len(texts))
        members = order[index % 2 :: 2]
        half = texts.take(members)
        training_seed = recipe.config.seed + 1 + 1000 * seed + index
        inputs = {
            "base": start_of(loaded),
            "adapter": None if recipe.adapter is None else str(recipe.adapter),
            "texts": half.fingerprint(),
            "config": asdict(recipe.seeded(training_seed)),
        }
        directory = folder / hashlib.sha256(results.to_json(inputs).encode()).hexdigest()[:16]
        with monitor.progress(f"training shadow model {index + 1} of {count}") as step:
            model = recipe.repeat(directory, half, loaded, seed=training_seed, progress=step)
        yield ShadowModel(directory, model.eval(), tuple(sorted(members.tolist())))


def _recipe(
    target: ModelLike | None, base: LanguageModel, options: ShadowOptions, monitor: Monitor
) -> Recipe:
    """The target's training, from its files or else the defaults, with the changes in `options`."""
    changes = options.changed(*TRAINING_OPTIONS)
    recorded: dict[str, Any] = {}
    adapter = None
    if isinstance(target, str | PathLike):
        path = Path(fspath(target))
        if (path / IDENTITY).is_file():
            recipe = Recipe.of(path)
            return replace(recipe, config=replace(recipe.config, **changes))
        recorded, adapter = ForeignTraining.of(path).settings, adapter_in(model_folder(path))
    default = usual_config(base, adapter=adapter is not None)
    config = replace(default, **{**recorded, **changes})
    monitor.log(
        f"Shadow models: {config.epochs} epochs, {config.batch_size} texts per step, learning rate "
        f"{config.learning_rate:g} (given, from the target's files, or default)."
    )
    return Recipe(config=config, tokens=0, adapter=adapter)


def plan_shadows(
    run: "Session", options: ShadowOptions, target: Target, *, count: int
) -> ShadowPlan | None:
    """Architecture and training: the target's if known, else those of the preset of its task."""
    if not count:
        return None
    changes = options.changed(*TRAINING_OPTIONS)
    if options.other_shapes:
        plan = replace(other_shapes(seed=run.seed, task=target.task), count=count)
        plan = replace(plan, training=replace(plan.training, **changes))
    else:
        preset = preset_of(target.task)
        recorded = _recorded_training(target)
        training = replace(recorded or preset.training, **changes)
        if recorded is not None:
            given = [f"--{name.replace('_', '-')} {value}" for name, value in changes.items()]
            but = f", but with {', '.join(given)}" if given else ""
            run.log(
                f"Shadow models are trained as {target.name} was{but}, for {training.epochs} "
                "epochs."
            )
        config: Any = getattr(target.model, "config", None)
        if not isinstance(config, SHADOW_CONFIGS):
            config = preset.model
        if (size := options.hidden_size) is not None:
            embedding = {} if isinstance(config, TransformerConfig) else {"embedding_size": size}
            config = replace(config, hidden_size=size, **embedding)
        plan = ShadowPlan(
            seed=run.seed, count=count, task=target.task, models=(config,), training=training
        )
    return replace(plan, training=settled(plan.training, choose_device(run.device)))


def train_planned(
    run: "Session", plan: ShadowPlan | None, inputs: UserInputs, folder: Path
) -> list[Shadow]:
    """Train the shadow models of a plan on texts of the counted and fitted users.

    Finished models in the folder are loaded.
    """
    if plan is None:
        return []
    groups = inputs.texts.groups(seed=run.seed)
    jobs = shadow_jobs(
        plan,
        inputs.texts.reference_of(groups.counted, groups.fitted),
        inputs.target.vocabulary,
        folder,
        source_vocabulary=inputs.target.source_vocabulary,
        device=run.device,
    )
    with run.progress("training shadow models") as step:

        def report_trained(line: str) -> None:
            done = run.store.get(TRAINED_COUNT, 0) + 1
            run.store[TRAINED_COUNT] = done  # so that an interruption says that the command resumes
            step(done)
            run.log(line)

        cluster, processes = run.arguments["cluster"], run.arguments["shadows"].processes
        map_fn: Callable[..., Iterable[Any]] = map
        if cluster is not None:
            map_fn = partial(map_cluster, address=cluster, receive=keep_shadow)
        elif processes > 1:
            map_fn = partial(map_processes, processes=processes)
        train = None if cluster is None else train_shadow_away
        shadows = train_shadows(jobs, train=train, map_fn=map_fn, say=report_trained)
    if useless := sum(shadow.useless for shadow in shadows):
        run.log(
            f"{useless} of {len(shadows)} shadow models predict no better than word frequencies. "
            "Give more --epochs, another --learning-rate or more --reference text."
        )
    return shadows


def plan_record(plan: ShadowPlan) -> dict[str, Any]:
    """A plan for the record of a run, with the names of architectures."""
    models = [{"name": type(model).__name__, **asdict(model)} for model in plan.models]
    return {**asdict(plan), "models": models}


def _recorded_training(target: Target) -> TrainingConfig | None:
    """How `vestige train` trained the target, up to the saved epoch; None if unknown."""
    try:
        run = results.load(Path(str(target.record["path"])) / RUN)
        recorded = run.run["configuration"]
        names = {field.name for field in fields(TrainingConfig)}
        training = TrainingConfig(**{k: v for k, v in recorded.items() if k in names})
        epochs = max(1, round(float(run.summary["epoch"])))
    except (RunError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if training.batching not in PLAIN_BATCHES:
        return None
    return replace(training, epochs=epochs, evaluate_every=None, precision="auto")
