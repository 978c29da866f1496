"""Exposure of one phrase by an update."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.options import DeviceOrSeveral, Flag, ModelLike, Seed
from vestige.workflows.snapshots import load_snapshots

if TYPE_CHECKING:
    from vestige.attacks.update.differential_rank import DifferentialRank
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import LanguageModel


def rank(
    before: ModelLike,
    after: ModelLike,
    phrase: Annotated[str, Flag("--phrase")],
    *,
    budget: Annotated[int, Ge(1)] = 20_000,
    delta: float = 0.1,
    samples: Annotated[int, Ge(0), Le(10**7)] = 16384,
    seed: Seed = 0,
    device: DeviceOrSeveral = "auto",
    monitor: Monitor = SILENT,
) -> "DifferentialRank":
    """Say how exposed one phrase is by an update.

    The differential rank is how many token sequences of the same length the update from `before`
    to `after` promoted more: 0 means that nothing stands before the phrase, so that whoever
    compares the snapshots reads it first. It is exact where that can be decided, and otherwise
    within proven bounds, with an estimate from samples between them. The profile says how much of
    the phrase one must know to be told the rest.

    Args:
        before: The earlier snapshot.
        after: The later snapshot.
        phrase: The phrase in question.
        budget: Prefixes of each length to follow; more take longer and bound more tightly.
        delta: Floor of the smoothed score, a probability.
        samples: Prefixes drawn to estimate a rank that the bounds leave open; 0: none.

    Raises:
        ValueError: `phrase` is empty, too long for a model, or has words that it does not know.
        VestigeError: a model cannot be read, or the two do not share a vocabulary.

    Examples:
        vestige rank before after --phrase "the gate code is nine seven two" --out run

        vestige rank before after --phrase "my name and address" --out run --json
    """
    from vestige.attacks.update.differential_rank import differential_rank
    from vestige.attacks.update.sampled_rank import Sampling

    call = Call.of(rank, locals())
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
