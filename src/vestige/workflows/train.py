"""Training: a language model, one that translates or answers, or one of intents and slots."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from vestige._markers import Flag, Group, Kinds, Metavar
from vestige.defences.registry import Defence, NoDefence, defences
from vestige.monitor import SILENT, Monitor
from vestige.result import Result
from vestige.workflows.arguments import Call
from vestige.workflows.options import (
    DATA,
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    IntentColumn,
    Limit,
    ModelLike,
    SourceColumn,
    TagsColumn,
    TextColumn,
    TokensColumn,
    UserColumn,
)
from vestige.workflows.task_options import refuse_others
from vestige.workflows.training_settings import (
    NLU,
    PAIRS,
    RUNNING,
    TEXT,
    TEXTS,
    ModelSettings,
    NluSettings,
    Task,
    TrainingSettings,
)

if TYPE_CHECKING:
    from vestige.training.history import TrainingHistory

DefenceChoice = Annotated[Defence | None, Kinds(defences), Group("Defence"), RUNNING]


def train(
    data: CorpusLike,
    *,
    out: Directory,
    task: Task = "text",
    start: Annotated[ModelLike | None, Flag("--from"), Metavar("MODEL")] = None,
    resume: bool = False,
    preset: Annotated[str | None, TEXT] = None,
    model: ModelSettings = ModelSettings(),
    training: TrainingSettings = TrainingSettings(),
    defence: DefenceChoice = None,
    nlu: NluSettings = NluSettings(),
    validation: Annotated[CorpusLike | None, Metavar("DATA")] = None,
    hold_out: float | None = None,
    seed: Annotated[int, Ge(0)] = 0,
    seeds: Annotated[int, Ge(1), RUNNING] = 1,
    device: Device = "auto",
    format: DataFormat = "auto",
    text: Annotated[TextColumn, TEXTS] = "text",
    user: Annotated[UserColumn, TEXTS] = None,
    max_documents_per_user: Annotated[int | None, Ge(1), DATA, TEXTS] = None,
    source: Annotated[SourceColumn, PAIRS] = None,
    tokens_column: Annotated[TokensColumn, NLU] = "tokens",
    tags_column: Annotated[TagsColumn, NLU] = "tags",
    intent_column: Annotated[IntentColumn, NLU] = "intent",
    limit: Limit = None,
    monitor: Monitor = SILENT,
) -> "Trained | RepeatedTraining":
    """Train a model on DATA, or continue one with `--from`: a language model, one that translates
    or answers, or one that reads intents and slots.

    The best epoch's model ends up in `DIR/model`, and every verb takes DIR for it. A checkpoint
    is written every few hundred steps: after a crash or a kill, the same command with
    `--resume` ends in the same bits as an undisturbed run.

    To compare two trainings from scratch, give the second `--vocabulary` of the first.

    With `--defence dp-sgd` or `dp-fedavg` the weights of every step have a guarantee. What it says,
    to whom, together with what earlier trainings of `--from` spent on the same records, and what it
    leaves out is printed before and after the training, and stands on the page of
    `vestige report DIR/run`. A vocabulary learnt from DATA is refused: give `--vocabulary` or
    `--from` a model of other text. Release `DIR/model` alone.

    With `--task next-word`, `translation` or `dialogue` the model is the one whose users an audit
    finds again: one layer of 128, half of which training drops, 5,000 words, 30 epochs. The first
    reads each text by itself. The others predict each text from its source: the `--source` column
    of a table, SATED, Cornell's films or any two files of lines that belong together. Give
    `--vocabulary` of a model that never saw DATA: words that are known because DATA has them give
    it away.

    With `--task nlu`, DATA holds utterances with a tag for each word and an intent each: a JSONL,
    CSV or Parquet file, Snips or ATIS as folders of `seq.in`, `seq.out` and `label`, the original
    Snips, NLU-Evaluation-Data, or a directory of `vestige plant --task nlu`. Two bi-LSTM layers, a
    softmax over intents and a CRF over tags learn them; the last epoch is kept, unless
    `--early-stopping` keeps the best. Parts for validation and test are used where DATA has them.
    With `--from` a Hugging Face folder its encoder is fine-tuned, with `--from` DIR of such a
    training it goes on. `vestige extract-nlu` then asks what can be read back.

    Args:
        data: A file, folder or hub data set.
        out: A new directory; with --resume, the old one.
        task: `text` predicts the next word of running text, `next-word` that of users' texts one
            by one; `translation` and `dialogue` predict texts from their sources; `nlu` reads
            intents and slots from labelled utterances.
        start: Continue this model.
        resume: Go on where the training in DIR was interrupted.
        preset: Architecture and training: `ptb-lstm`, `reddit-lstm`, `reddit-transformer`,
            `wikitext-lstm` (the paper's) or `demo`. Options below change single settings.
            Default: `ptb-lstm`, or `reddit-transformer` for a transformer, or with --from a gentle
            training that suits the model.
        model: Shape and vocabulary of a fresh model, or an adapter.
        training: How it learns, and until when.
        defence: `dp-sgd`: clipped, noised gradients, with a proof. `dp-fedavg`: the same for what
            users learn by themselves; a step is a round. `adversarial`, `triplet`: the privacy
            regularizers, which need users. `goldfish`: one token in four is never learnt.
        nlu: What only utterances have.
        validation: Text that decides which epoch is best.
        hold_out: Share of DATA held out where nothing else validates: a hash of each document
            decides, or of each user where users are protected. Default: 0.05, or 0.1 of
            utterances.
        seed: Decides all that is drawn; of a private training the initial weights alone: what it
            draws afterwards nobody can repeat.
        seeds: Make so many trainings that differ in their seed alone, from `--seed` on, in
            `DIR/seed-0` and so forth: what `vestige compare` needs for a verdict.
        max_documents_per_user: With --user: leave out what a user has beyond so many documents,
            chosen by hash. Documents without a user count as one user's.
        monitor: Told what is done, what is promised and what came of it.

    Returns:
        The finished training; of several seeds, all of them.

    Raises:
        ValueError: parameters contradict each other, or one belongs to another task.
        VestigeError: something cannot be read, trained or written.

    Examples:
        vestige train corpus.txt --out before --epochs 6

        vestige train planted --out after --vocabulary before --seed 1

        vestige train planted --out plain --vocabulary public --seeds 3

        vestige train news.jsonl --text body --from before --out after --epochs 2

        vestige train mail.jsonl --from gpt2-folder --lora-rank 8 --out adapter

        vestige train mail.jsonl --from public --defence dp-sgd --epsilon 8 --batch-size 256
        --out private

        vestige train mail.jsonl --user sender --from public --defence dp-fedavg --epsilon 8
        --out users

        vestige train mail.jsonl --user sender --defence adversarial --out hidden

        vestige train comments.jsonl --task next-word --user author --vocabulary other --out target

        vestige train letters.jsonl --task translation --source french --text english --out target

        vestige train snips --task nlu --vectors glove-6b-50d --epochs 20 --out plain

        vestige train planted --task nlu --dropout --early-stopping --out defended

        vestige train said.jsonl --task nlu --from bert-folder --out tuned
    """
    call = Call.of(train, locals())
    refuse_others(train, call.arguments)
    if seeds > 1:
        return _repeated(call, monitor)
    request = TrainingRequest(call=call, monitor=monitor, **_own(call))
    if task == "nlu":
        from vestige.workflows import train_nlu

        return train_nlu.run(request)
    if task in PAIRS.tasks:
        from vestige.workflows import train_pairs

        return train_pairs.run(request)
    from vestige.workflows import train_text

    return train_text.run(request)


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One training that was asked for: the parameters of `train`.

    Attributes:
        defence: `NoDefence` where none was asked for.
    """

    call: Call
    monitor: Monitor
    data: Any
    out: Path
    task: Task
    start: Any
    resume: bool
    preset: str | None
    model: ModelSettings
    training: TrainingSettings
    defence: Defence
    nlu: NluSettings
    validation: Any
    hold_out: float | None
    seed: int
    device: str
    format: str
    text: str
    user: str | None
    max_documents_per_user: int | None
    source: str | None
    tokens_column: str
    tags_column: str
    intent_column: str
    limit: int | None


def _own(call: Call) -> dict[str, Any]:
    """The arguments of one training, with objects in place of what stands for them."""
    own: dict[str, Any] = dict(call.arguments)
    del own["seeds"]
    return {**own, "out": Path(own["out"]), "defence": own["defence"] or NoDefence()}


def _repeated(call: Call, monitor: Monitor) -> "RepeatedTraining":
    """The same training with several seeds."""
    from vestige.training_runs import REPEAT
    from vestige.workflows.privacy_plan import log_joint
    from vestige.workflows.training_directory import check_repeats

    asked: dict[str, Any] = dict(call.arguments)
    out, first, count = Path(asked["out"]), asked["seed"], asked["seeds"]
    check_repeats(out, asked["resume"])
    found = []
    for number, seed in enumerate(range(first, first + count), 1):
        monitor.log(f"Training {number} of {count}, seed {seed}")
        own = {"out": out / REPEAT.format(seed), "seed": seed, "seeds": 1}
        one = train(**{**asked, **own}, monitor=monitor)
        assert isinstance(one, Trained)
        found.append(one)
    log_joint([one.directory for one in found], monitor)
    return RepeatedTraining(directory=out, trainings=tuple(found))


@dataclass(frozen=True, kw_only=True)
class Trained(Result):
    """A finished training and the directory that it has written.

    Attributes:
        directory: holds `model/`, `run/` and the log; every verb takes it for the model.
        history: what the training went through.
        saved: the summary of its run.
    """

    directory: Path
    history: "TrainingHistory"
    saved: dict[str, Any]

    @property
    def model(self) -> Path:
        """The folder of the model that was kept."""
        return self.directory / "model"

    def summary(self) -> dict[str, Any]:
        """Where the model is, the kept epoch, the cost, and what the task scores or promises."""
        return {"model": str(self.model), **self.saved}

    def rows(self) -> list[dict[str, Any]]:
        """One row an evaluation."""
        return self.history.rows()


@dataclass(frozen=True, kw_only=True)
class RepeatedTraining(Result):
    """Trainings that differ in their seed alone.

    Attributes:
        directory: holds them.
        trainings: by seed.
    """

    directory: Path
    trainings: tuple[Trained, ...]

    def summary(self) -> dict[str, Any]:
        """Where they are, and how many."""
        return {"directory": str(self.directory), "trainings": len(self.trainings)}

    def rows(self) -> list[dict[str, Any]]:
        """The summary of each training."""
        return [one.summary() for one in self.trainings]
