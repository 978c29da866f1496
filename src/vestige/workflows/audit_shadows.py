"""Shadow models of an audit of users: shapes, trainings and where they are trained."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from vestige import results
from vestige.data.corpus import Corpus
from vestige.errors import RunError
from vestige.models.protocols import choose_device
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.models.transformer import TransformerConfig
from vestige.monitor import Monitor
from vestige.parallel import map_cluster, map_processes
from vestige.training.config import TrainingConfig
from vestige.training.precision import settled
from vestige.training.presets import PRESETS, pair_preset
from vestige.training.shadow_jobs import ShadowConfig, ShadowPlan, other_shapes, shadow_jobs
from vestige.training.shadows import Shadow, keep_shadow, train_shadow_away, train_shadows
from vestige.training_runs import RUN
from vestige.workflows.audit_options import SIZES, TRAINING, ShadowSettings
from vestige.workflows.audit_target import Target

SHAPES = LSTMConfig | GRUConfig | TransformerConfig | Seq2SeqConfig

ORDINARY = ("stream", "documents", "users")
"""Batches of trainings that a shadow can imitate; a defence draws others."""


def plan_shadows(
    settings: ShadowSettings, target: Target, *, seed: int, device: str, monitor: Monitor
) -> ShadowPlan | None:
    """Shapes and trainings, by the target or its task's preset where settings leave them open."""
    if not settings.shadows:
        return None
    given = settings.set_of(TRAINING)
    if settings.other_shapes:
        plan = other_shapes(seed=seed, task=target.task)
        training = replace(plan.training, **given)
        plan = replace(plan, count=settings.shadows, training=training)
    else:
        preset = PRESETS[target.task] if target.task == "next-word" else pair_preset(target.task)
        own, recorded = getattr(target.model, "config", None), _recorded_training(target)
        training = replace(recorded or preset.training, **given)
        if recorded is not None:
            changed = [f"--{name.replace('_', '-')} {value}" for name, value in given.items()]
            but = f", but with {', '.join(changed)}" if changed else ""
            monitor.log(
                f"Shadow models learn as {target.name} did{but}, for {training.epochs} epochs"
            )
        plan = ShadowPlan(
            seed=seed,
            count=settings.shadows,
            task=target.task,
            models=(_resized(own if isinstance(own, SHAPES) else preset.model, settings),),
            training=training,
        )
    return replace(plan, training=settled(plan.training, choose_device(device)))


def train_planned(
    plan: ShadowPlan,
    settings: ShadowSettings,
    target: Target,
    reference: Corpus,
    folder: Path,
    *,
    device: str,
    monitor: Monitor,
) -> list[Shadow]:
    """All shadows of a plan; those that are finished are not trained again."""
    jobs = shadow_jobs(
        plan,
        reference,
        target.vocabulary,
        folder,
        source_vocabulary=target.source_vocabulary,
        device=device,
    )
    away = settings.cluster is not None
    with monitor.progress("training shadow models") as step:
        done = 0

        def told(line: str) -> None:
            nonlocal done
            done += 1
            step(done)
            monitor.log(line)

        train = train_shadow_away if away else None
        return train_shadows(jobs, train=train, map_fn=_map(settings), say=told)


def described(plan: ShadowPlan) -> dict[str, Any]:
    """A plan as a record has it, with the names of shapes."""
    models = [{"name": type(model).__name__, **asdict(model)} for model in plan.models]
    return {**asdict(plan), "models": models}


def _map(settings: ShadowSettings) -> Callable[..., Iterable[Any]]:
    if settings.cluster is not None:
        return partial(map_cluster, address=settings.cluster, receive=keep_shadow)
    several = settings.processes > 1
    return partial(map_processes, processes=settings.processes) if several else map


def _resized(shape: ShadowConfig, settings: ShadowSettings) -> ShadowConfig:
    wanted = settings.set_of(SIZES)
    if "hidden_size" in wanted and not hasattr(shape, "heads"):
        wanted.setdefault("embedding_size", wanted["hidden_size"])
    if settings.architecture is not None and isinstance(shape, Seq2SeqConfig):
        wanted["cell"] = settings.architecture
    elif settings.architecture is not None:
        kind: Any = {"lstm": LSTMConfig, "gru": GRUConfig}[settings.architecture]
        shape = kind(**asdict(shape)) if isinstance(shape, LSTMConfig | GRUConfig) else kind()
    if unknown := sorted(set(wanted) - {each.name for each in fields(shape)}):
        raise ValueError(
            f"`{unknown[0]}` must be left out where shadow models have the shape of a "
            "transformer, or come with `architecture`"
        )
    return replace(shape, **wanted)


def _recorded_training(target: Target) -> TrainingConfig | None:
    """How `vestige train` taught the target, up to the epoch that it kept; None where unknown."""
    try:
        run = results.load(Path(str(target.recorded["path"])) / RUN)
        said = run.run["configuration"]
        known = {each.name for each in fields(TrainingConfig)}
        training = TrainingConfig(**{k: v for k, v in said.items() if k in known})
        epochs = max(1, round(float(run.summary["epoch"])))
    except (RunError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if training.batching not in ORDINARY:
        return None
    return replace(training, epochs=epochs, evaluate_every=None, precision="auto")
