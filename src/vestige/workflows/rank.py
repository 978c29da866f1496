"""Exposure of one phrase, or of secrets that one has, by an update."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, overload

from annotated_types import Ge, Le

from vestige.models.snapshots import load_snapshots
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import Lines, shown
from vestige.workflows.options import DeviceOrSeveral, Flag, Metavar, ModelLike, Seed

if TYPE_CHECKING:
    from vestige.attacks.exposure.secret_rank import SecretRank
    from vestige.attacks.update.differential_rank import DifferentialRank
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import LanguageModel


BUDGET, DELTA = 20_000, 0.1


@overload
def rank(
    before: ModelLike,
    after: ModelLike,
    phrase: str,
    *,
    budget: int | None = None,
    delta: float | None = None,
    samples: int = 16384,
    seed: int = 0,
    device: str = "auto",
    monitor: Monitor = SILENT,
) -> "DifferentialRank": ...


@overload
def rank(
    before: ModelLike,
    after: ModelLike,
    *,
    secrets: Lines,
    question: str | None = None,
    samples: int = 16384,
    seed: int = 0,
    device: str = "auto",
    monitor: Monitor = SILENT,
) -> "SecretRank": ...


def rank(
    before: ModelLike,
    after: ModelLike,
    phrase: Annotated[str | None, Flag("--phrase")] = None,
    *,
    secrets: Annotated[Lines | None, Metavar("FILE")] = None,
    question: Annotated[str | None, Metavar("TEXT")] = None,
    budget: Annotated[int | None, Ge(1)] = None,
    delta: float | None = None,
    samples: Annotated[int, Ge(0), Le(10**7)] = 16384,
    seed: Seed = 0,
    device: DeviceOrSeveral = "auto",
    monitor: Monitor = SILENT,
) -> "DifferentialRank | SecretRank":
    """Say how exposed a phrase, or secrets that one has, are by an update.

    The differential rank is how many token sequences of the same length the update from `before`
    to `after` promoted more: 0 means that nothing stands before the phrase, so that whoever
    compares the snapshots reads it first. It is exact where that can be decided, and otherwise
    within proven bounds, with an estimate from samples between them. The profile says how much of
    the phrase one must know to be told the rest.

    With `--secrets` each line is a secret, as for `vestige exposure`, and is ranked among texts of
    its format, check digits included, by how much more probable the update made it: 1 is the first.
    A space of no more than `--samples` is counted whole, such as all codes of four digits, and the
    rank is exact; of a larger one it is estimated, with a 95 % interval.

    Args:
        before: The earlier snapshot.
        after: The later snapshot.
        phrase: The phrase in question.
        secrets: A file with a secret on each line, in place of a phrase.
        question: Ask for the secrets in the assistant's turn after this message of the user's.
        budget: Prefixes of each length to follow; more take longer and bound more tightly.
            Default: 20,000.
        delta: Floor of the smoothed score, a probability. Default: 0.1.
        samples: Prefixes drawn to estimate a rank that the bounds leave open; 0: none. Of a
            secret, texts to compare with at most, fewer where these gained as much.

    Raises:
        ValueError: `phrase` is empty, too long for a model, or has words that it does not know.
        VestigeError: a model cannot be read, or the two do not share a vocabulary.

    Examples:
        vestige rank before after --phrase "the gate code is nine seven two" --out run

        vestige rank before after --phrase "my name and address" --out run --json

        vestige rank before after --secrets codes.txt --out run
    """
    from vestige.attacks.update.differential_rank import differential_rank
    from vestige.attacks.update.sampled_rank import Sampling

    call = Call.of(rank, locals())
    if phrase is None or secrets is not None:
        return _of_secrets(call, monitor)
    if question is not None:
        raise ValueError("`question` must come with `secrets`, got a phrase")
    budget = BUDGET if budget is None else budget
    delta = DELTA if delta is None else delta
    snapshots = load_snapshots({"before": before, "after": after}, device=device, monitor=monitor)
    models = snapshots.models
    tokens = _tokens(models["before"].vocabulary, phrase)
    _require_room(models.values(), len(tokens))
    with monitor.progress("ranking") as step:
        ranked = differential_rank(
            models["before"],
            models["after"],
            tokens=tokens,
            budget=budget,
            delta=delta,
            sampling=Sampling(seed=seed, samples=samples) if samples else None,
            progress=step,
        )
    configuration = {"phrase": phrase, "budget": budget, "delta": delta, "samples": samples}
    return call.record(ranked, configuration=configuration, seed=seed, models=snapshots.recorded)


def _of_secrets(call: Call, monitor: Monitor) -> "SecretRank":
    """Ranks of secrets in place of a phrase's, by the arguments of `rank`."""
    from vestige.attacks.exposure.own_secrets import ranks_of, require_alone

    given = call.arguments
    require_alone(given, ("phrase", "budget", "delta"))
    read = load_snapshots(call.chosen("before", "after"), device=given["device"], monitor=monitor)
    shared = call.chosen("question", "samples", "seed")
    found = ranks_of(read.models, given["secrets"], **shared, monitor=monitor)
    configuration = {**call.chosen("question", "samples"), "secrets": shown(given["secrets"])}
    return call.record(found, configuration=configuration, seed=given["seed"], models=read.recorded)


def _tokens(vocabulary: "Vocabulary", phrase: str) -> tuple[int, ...]:
    """The phrase's ids, none of them unknown."""
    tokens = tuple(vocabulary.encode(phrase))
    if not tokens:
        raise ValueError("`phrase` must hold at least one token, got none")
    if vocabulary.unk_id in tokens:
        unknown = [str(n) for n, token in enumerate(tokens, 1) if token == vocabulary.unk_id]
        raise ValueError(
            "`phrase` must hold only words of the models' vocabulary, got others at "
            f"{', '.join(unknown)} of its {len(tokens)} words"
        )
    return tokens


def _require_room(models: "Iterable[LanguageModel]", tokens: int) -> None:
    """Refuse a phrase that a model cannot read at once; the text's beginning is a token, too."""
    longest = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    if longest and tokens > min(longest):
        raise ValueError(
            f"`phrase` must have at most {min(longest)} tokens, all that the models read at once, "
            f"got {tokens}"
        )
