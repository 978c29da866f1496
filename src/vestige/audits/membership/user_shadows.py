"""Shadow models of an audit of users: architectures, training, and where they are trained."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige import results
from vestige.audits.membership.shadow_options import TRAINING, ShadowOptions
from vestige.audits.membership.target import Target
from vestige.data.corpus import Corpus
from vestige.errors import RunError
from vestige.models.protocols import choose_device
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.models.transformer import TransformerConfig
from vestige.parallel import map_cluster, map_processes
from vestige.preparation.trained import RUN
from vestige.training.config import TrainingConfig
from vestige.training.precision import settled
from vestige.training.presets import PRESETS, pair_preset
from vestige.training.shadow_jobs import ShadowPlan, other_shapes, shadow_jobs
from vestige.training.shadows import Shadow, keep_shadow, train_shadow_away, train_shadows

if TYPE_CHECKING:
    from vestige.session import Session

CONFIGS = LSTMConfig | GRUConfig | TransformerConfig | Seq2SeqConfig
"""Architectures that a shadow can have."""
PLAIN_BATCHES = ("stream", "documents", "users")
"""Batches of trainings that a shadow can imitate; those of a defence are random samples."""
TRAINED = "shadow models trained"


def plan_shadows(
    run: "Session", options: ShadowOptions, target: Target, *, count: int
) -> ShadowPlan | None:
    """Architecture and training, of the target if they are known, else of its task's preset."""
    if not count:
        return None
    changes = options.set_of(TRAINING)
    if options.other_shapes:
        plan = other_shapes(seed=run.seed, task=target.task)
        plan = replace(plan, count=count, training=replace(plan.training, **changes))
    else:
        preset = PRESETS[target.task] if target.task == "next-word" else pair_preset(target.task)
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
    run: "Session",
    plan: ShadowPlan,
    target: Target,
    texts: Corpus,
    folder: Path,
    *,
    processes: int,
    cluster: str | None,
) -> list[Shadow]:
    """All shadows of a plan. Finished ones are not trained again.

    Args:
        run: the session.
        plan: of `plan_shadows`.
        target: its vocabulary is that of the shadows.
        texts: of the counted and fitted users.
        folder: of finished shadows.
        processes: that train, unless there is a cluster.
        cluster: address of a Ray cluster to train on.
    """
    source, device = target.source_vocabulary, run.device
    jobs = shadow_jobs(
        plan, texts, target.vocabulary, folder, source_vocabulary=source, device=device
    )
    with run.progress("training shadow models") as step:

        def trained(line: str) -> None:
            done = run.store.get(TRAINED, 0) + 1
            run.store[TRAINED] = done  # so that an interruption says that the command resumes
            step(done)
            run.log(line)

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
