"""The shadow models of an audit of users: which, how they learn, and where."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.cli.audit_target import Target
from vestige.cli.terminal import progress, say
from vestige.errors import RunError

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.training.config import TrainingConfig
    from vestige.training.shadow_jobs import ShadowConfig, ShadowPlan, Task
    from vestige.training.shadows import Shadow

ORDINARY = ("stream", "documents", "users")
"""Batches of trainings that a shadow can imitate; a defence draws others."""


@dataclass(frozen=True, kw_only=True)
class WantedShadows:
    """What was asked for; None where the target or a preset decides.

    Attributes:
        count: how many; 0 for none.
        other_shapes: the paper's, for a target of unknown shape.
        cell: "lstm" or "gru".
        sizes: of the network by name.
        training: settings of `TrainingConfig` by name.
        processes: how many learn at a time.
        cluster: of Ray, where they learn; None: here.
        device: where they learn, and are asked.
        seed: of everything that is drawn.
    """

    count: int
    other_shapes: bool
    cell: str | None
    sizes: dict[str, int | None] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    processes: int
    cluster: str | None
    device: str
    seed: int

    def check(self) -> None:
        """Raise ValueError where options contradict each other, before anything is read."""
        if self.count == 1:
            raise ValueError(
                "--shadows must be 0, 2 or more, got 1: half of the reference users would have "
                "no model that has not seen them"
            )
        shaped = {"--architecture": self.cell} | {
            f"--{name.replace('_', '-')}": size for name, size in self.sizes.items()
        }
        wanted = [option for option, value in shaped.items() if value is not None]
        if self.other_shapes and wanted:
            raise ValueError(f"{wanted[0]} must be left out with --other-shapes, which has its own")
        if self.cluster is not None and self.processes > 1:
            raise ValueError(
                f"--processes must be left out with --cluster, got {self.processes}: there every "
                "core trains one"
            )

    def plan(self, target: Target) -> "ShadowPlan | None":
        """Shapes and trainings for this target; None without shadow models."""
        from vestige.models.protocols import choose_device
        from vestige.training.precision import settled

        if not self.count:
            return None
        plan = self._plan(target)
        return replace(plan, training=settled(plan.training, choose_device(self.device)))

    def _plan(self, target: Target) -> "ShadowPlan":
        from vestige.training.shadow_jobs import ShadowPlan, other_shapes

        given = {name: value for name, value in self.training.items() if value is not None}
        if self.other_shapes:
            plan = other_shapes(seed=self.seed, task=target.task)
            return replace(plan, count=self.count, training=replace(plan.training, **given))
        shape, training = _preset(target.task)
        shape = _own_shape(target) or shape
        recorded = _recorded(target)
        training = replace(recorded or training, **given)
        if recorded is not None:
            changed = [f"--{name.replace('_', '-')} {value}" for name, value in given.items()]
            but = f", but with {', '.join(changed)}" if changed else ""
            say(f"Shadow models learn as {target.path} did{but}, for {training.epochs} epochs")
        return ShadowPlan(
            seed=self.seed,
            count=self.count,
            task=target.task,
            models=(self._resized(shape),),
            training=training,
        )

    def train(
        self, plan: "ShadowPlan", target: Target, reference: "Corpus", folder: Path
    ) -> "list[Shadow]":
        """All of them; those that are finished are not trained again."""
        from vestige.training.shadow_jobs import shadow_jobs
        from vestige.training.shadows import train_shadow_away, train_shadows

        jobs = shadow_jobs(
            plan,
            reference,
            target.vocabulary,
            folder,
            source_vocabulary=target.source_vocabulary,
            device=self.device,
        )
        train = None if self.cluster is None else train_shadow_away
        with progress("training shadow models") as bar:
            done = 0

            def told(line: str) -> None:
                nonlocal done
                done += 1
                bar(done)
                say(line)

            return train_shadows(jobs, train=train, map_fn=self._map(), say=told)

    def _map(self) -> Callable[..., Iterable[Any]]:
        from vestige.parallel import map_cluster, map_processes
        from vestige.training.shadows import keep_shadow

        if self.cluster is not None:
            return partial(map_cluster, address=self.cluster, receive=keep_shadow)
        return map if self.processes == 1 else partial(map_processes, processes=self.processes)

    def _resized(self, shape: "ShadowConfig") -> "ShadowConfig":
        from dataclasses import asdict

        from vestige.models.gru import GRUConfig
        from vestige.models.lstm import LSTMConfig
        from vestige.models.seq2seq import Seq2SeqConfig

        wanted: dict[str, Any] = {name: n for name, n in self.sizes.items() if n is not None}
        if "hidden_size" in wanted and not hasattr(shape, "heads"):
            wanted.setdefault("embedding_size", wanted["hidden_size"])
        if self.cell is not None and isinstance(shape, Seq2SeqConfig):
            wanted["cell"] = self.cell
        elif self.cell is not None:
            kind: Any = {"lstm": LSTMConfig, "gru": GRUConfig}[self.cell]
            shape = kind(**asdict(shape)) if isinstance(shape, LSTMConfig | GRUConfig) else kind()
        unknown = sorted(set(wanted) - {each.name for each in fields(shape)})
        if unknown:
            raise ValueError(
                f"--{unknown[0].replace('_', '-')} must be left out where shadow models have the "
                "shape of a transformer, or come with --architecture"
            )
        return replace(shape, **wanted)


def _preset(task: "Task") -> "tuple[ShadowConfig, TrainingConfig]":
    from vestige.training.presets import PRESETS, pair_preset

    preset = PRESETS[task] if task == "next-word" else pair_preset(task)
    return preset.model, preset.training


def _own_shape(target: Target) -> "ShadowConfig | None":
    from vestige.models.gru import GRUConfig
    from vestige.models.lstm import LSTMConfig
    from vestige.models.seq2seq import Seq2SeqConfig
    from vestige.models.transformer import TransformerConfig

    own = getattr(target.model, "config", None)
    known = LSTMConfig | GRUConfig | TransformerConfig | Seq2SeqConfig
    return own if isinstance(own, known) else None


def _recorded(target: Target) -> "TrainingConfig | None":
    """How `vestige train` taught the target, up to the epoch that it kept; None where unknown."""
    from vestige import results
    from vestige.training.config import TrainingConfig
    from vestige.workflows.training_runs import RUN

    try:
        run = results.load(Path(target.path) / RUN)
        said = run.run["configuration"]
        known = {each.name for each in fields(TrainingConfig)}
        training = TrainingConfig(**{k: v for k, v in said.items() if k in known})
        epochs = max(1, round(float(run.summary["epoch"])))
    except (RunError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if training.batching not in ORDINARY:
        return None
    return replace(training, epochs=epochs, evaluate_every=None, precision="auto")
