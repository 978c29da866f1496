"""Memorization by word frequency, rank and hidden unit: `vestige anatomy`."""

from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from vestige.models import provenance
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import open_corpus, open_generator
from vestige.workflows.options import (
    CorpusLike,
    DataFormat,
    Device,
    Flag,
    Group,
    Limit,
    Metavar,
    ModelLike,
    Seed,
    SourceColumn,
    TextColumn,
    UserColumn,
)

if TYPE_CHECKING:
    from vestige.attacks.anatomy.memorization_result import Anatomy

ABLATION = Group("Silencing hidden units")


def anatomy(
    model: ModelLike,
    seen: Annotated[CorpusLike, Flag("--seen"), Metavar("DATA")],
    unseen: Annotated[CorpusLike, Flag("--unseen"), Metavar("DATA")],
    *,
    frequencies: Annotated[CorpusLike | None, Metavar("DATA")] = None,
    frequent: float = 0.2,
    bins: Annotated[int, Ge(1)] = 10,
    orders: Annotated[int, Ge(0), ABLATION] = 5,
    ablation_words: Annotated[int, Ge(1), ABLATION] = 10_000,
    format: DataFormat = "auto",
    text: TextColumn = "text",
    user: UserColumn = None,
    source: SourceColumn = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    monitor: Monitor = SILENT,
) -> "Anatomy":
    """Memorization by word frequency, by rank and by hidden unit.

    Three figures compare text that MODEL was trained on with text like it that it never saw: how
    likely it finds the true words, for frequent words and for the rest; at which rank it lists
    them, by their frequency; and how fast accuracy falls as hidden units are silenced at random.
    Memory shows as a difference between the two texts, and sits mostly in words that are rare.

    Intervals draw whole users anew where --user names them, else whole texts. Beside every
    difference stands a null: the same difference between two random halves of --unseen. The two
    texts should differ in nothing but training: same source, same time, other people. No text
    and no user's name is written to DIR.

    Args:
        model: The model to analyse.
        seen: Text that the model was trained on.
        unseen: Text like it that the model was not trained on.
        frequencies: Text that says how frequent words are; --seen, as in the paper, if not given.
        frequent: The share of words that counts as frequent.
        bins: Parts of the words by frequency.
        orders: Random orders in which hidden units are silenced; 0 leaves this out.
        ablation_words: Words of --seen and of --unseen that it asks about, in whole texts.

    Examples:
        vestige anatomy trained --seen members.jsonl --unseen others.jsonl --user author --out run

        vestige anatomy gpt2-tuned --seen letters.txt --unseen held-out.txt --orders 0 --out run

        vestige report run --out page.html
    """
    call = Call.of(anatomy, locals())
    from vestige.attacks.anatomy import memorization

    planned = call.chosen("frequent", "bins", "orders", "ablation_words")
    plan = memorization.AnatomyPlan(**planned)
    loaded = open_generator(model, device=device)
    given = {"seen": seen, "unseen": unseen}
    if frequencies is not None:
        given["frequencies"] = frequencies
    columns = {**call.chosen("format", "text", "user", "limit"), "source_column": source}
    corpora = {name: open_corpus(data, **columns) for name, data in given.items()}
    with monitor.progress("reading words") as step:
        found = memorization.anatomy(
            loaded,
            corpora["seen"],
            unseen=corpora["unseen"],
            counted=corpora.get("frequencies"),
            plan=plan,
            seed=seed,
            progress=step,
        )
    return call.record(
        found,
        configuration=planned,
        seed=seed,
        models={"model": provenance.of_model(model, loaded)},
        data={name: provenance.of_corpus(data, corpora[name]) for name, data in given.items()},
    )
