"""Shadow models: trained as the target, on texts that say who is a member of which.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", arXiv:1811.00513,
Algorithm 1. Shadows of texts are fine-tunes of the base; those of users are trained from scratch.
They come in pairs, which are trained on the two halves of the texts. A finished one is loaded, an
interrupted one resumes.
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
from vestige.audits.membership.membership import TRAINING, ShadowOptions
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

SHADOWS_OF_TEXTS = 4
"""Shadow models of texts if no number is given."""
CONFIGS = LSTMConfig | GRUConfig | TransformerConfig | Seq2SeqConfig
"""Architectures that a shadow of users can have."""
PLAIN_BATCHES = ("stream", "documents", "users")
"""Batches of trainings that a shadow can imitate; those of a defence are random samples."""
TRAINED = "shadow models trained"


@contextmanager
def shadow_folder(run: "Session") -> Iterator[Path]:
    """The folder of shadow models, a temporary one if there is no other."""
    if folder := run.beside_out("shadows", run.arguments["shadows"].shadow_dir):
        yield folder
    else:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)


@dataclass(frozen=True)
class ShadowModel:
    """A trained shadow model of texts.

    Attributes:
        directory: of its own.
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
    """Train the shadow models of an audit of texts, or load them; one at a time is held.

    Args:
        target: whose training they repeat as far as it is known: an adapter like its own, or all
            weights; None: a served model.
        base: that they start from; None: the base of the adapter `target`.
        texts: like the target's training data, but not in it.
        options: how many, and changes of the training.
        folder: holds a folder for each, named by a hash of all that determines it.
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
    count, order = options.shadows or SHADOWS_OF_TEXTS, np.arange(0)
    for number in range(count):
        if number % 2 == 0:
            order = np.random.default_rng([seed, number]).permutation(len(texts))
        own = order[number % 2 :: 2]
        half, own_seed = texts.take(own), recipe.config.seed + 1 + 1000 * seed + number
        determined_by = {
            "base": start_of(loaded),
            "adapter": None if recipe.adapter is None else str(recipe.adapter),
            "texts": half.fingerprint(),
            "config": asdict(recipe.seeded(own_seed)),
        }
        name = hashlib.sha256(results.to_json(determined_by).encode()).hexdigest()[:16]
        with monitor.progress(f"training shadow model {number + 1} of {count}") as step:
            model = recipe.repeat(folder / name, half, loaded, seed=own_seed, progress=step)
        yield ShadowModel(folder / name, model.eval(), tuple(sorted(own.tolist())))


def _recipe(
    target: ModelLike | None, base: LanguageModel, options: ShadowOptions, monitor: Monitor
) -> Recipe:
    """How the target was trained: as its files tell, else the defaults, with the given changes."""
    given = options.changed(*TRAINING)
    known: dict[str, Any] = {}
    adapter = None
    if isinstance(target, str | PathLike):
        path = Path(fspath(target))
        if (path / IDENTITY).is_file():
            own = Recipe.of(path)
            return replace(own, config=replace(own.config, **given))
        known, adapter = ForeignTraining.of(path).settings, adapter_in(model_folder(path))
    usual = usual_config(base, adapter=adapter is not None)
    config = replace(usual, **{**known, **given})
    monitor.log(
        f"Shadow models: {config.epochs} epochs, {config.batch_size} texts per step, learning rate "
        f"{config.learning_rate:g} (given, from the target's files, or default)."
    )
    return Recipe(config=config, tokens=0, adapter=adapter)


def plan_shadows(
    run: "Session", options: ShadowOptions, target: Target, *, count: int
) -> ShadowPlan | None:
    """Architecture and training, of the target if they are known, else of its task's preset."""
    if not count:
        return None
    changes = options.changed(*TRAINING)
    if options.other_shapes:
        plan = replace(other_shapes(seed=run.seed, task=target.task), count=count)
        plan = replace(plan, training=replace(plan.training, **changes))
    else:
        preset = preset_of(target.task)
        own, recorded = getattr(target.model, "config", None), _recorded_training(target)
        training = replace(recorded or preset.training, **changes)
        if recorded is not None:
            changed = [f"--{name.replace('_', '-')} {value}" for name, value in changes.items()]
            but = f", but with {', '.join(changed)}" if changed else ""
            run.log(
                f"Shadow models are trained as {target.name} was{but}, for {training.epochs} "
                "epochs."
            )
        config: Any = own if isinstance(own, CONFIGS) else preset.model
        if (size := options.hidden_size) is not None:
            words = {} if isinstance(config, TransformerConfig) else {"embedding_size": size}
            config = replace(config, hidden_size=size, **words)
        plan = ShadowPlan(
            seed=run.seed, count=count, task=target.task, models=(config,), training=training
        )
    return replace(plan, training=settled(plan.training, choose_device(run.device)))


def train_planned(
    run: "Session", plan: ShadowPlan | None, inputs: UserInputs, folder: Path
) -> list[Shadow]:
    """All shadows of a plan, on texts of the counted and fitted users.

    Finished ones in the folder are not trained again.
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

        def trained(line: str) -> None:
            done = run.store.get(TRAINED, 0) + 1
            run.store[TRAINED] = done  # so that an interruption says that the command resumes
            step(done)
            run.log(line)

        cluster, processes = run.arguments["cluster"], run.arguments["shadows"].processes
        map_fn: Callable[..., Iterable[Any]] = map
        if cluster is not None:
            map_fn = partial(map_cluster, address=cluster, receive=keep_shadow)
        elif processes > 1:
            map_fn = partial(map_processes, processes=processes)
        train = None if cluster is None else train_shadow_away
        shadows = train_shadows(jobs, train=train, map_fn=map_fn, say=trained)
    if useless := sum(one.useless for one in shadows):
        run.log(
            f"{useless} of {len(shadows)} shadow models predict no better than word frequencies. "
            "Give more --epochs, another --learning-rate or more --reference text."
        )
    return shadows


def described(plan: ShadowPlan) -> dict[str, Any]:
    """A plan as a record has it, with the names of architectures."""
    models = [{"name": type(model).__name__, **asdict(model)} for model in plan.models]
    return {**asdict(plan), "models": models}


def _recorded_training(target: Target) -> TrainingConfig | None:
    """How `vestige train` trained the target, up to the epoch that it kept; None if unknown."""
    try:
        run = results.load(Path(str(target.record["path"])) / RUN)
        recorded = run.run["configuration"]
        known = {each.name for each in fields(TrainingConfig)}
        training = TrainingConfig(**{k: v for k, v in recorded.items() if k in known})
        epochs = max(1, round(float(run.summary["epoch"])))
    except (RunError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if training.batching not in PLAIN_BATCHES:
        return None
    return replace(training, epochs=epochs, evaluate_every=None, precision="auto")
