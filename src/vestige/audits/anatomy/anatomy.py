"""Memorization by word frequency, by rank and by hidden unit. For Python only.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Figures 5 to 7.
"""

from os import PathLike, fspath
from typing import Any, Unpack

from vestige.arguments import (
    Common,
    CorpusLike,
    Count,
    Format,
    Limit,
    ModelLike,
    Natural,
    Probability,
    SourceColumn,
    TextColumn,
    UserColumn,
)
from vestige.results import Result
from vestige.session import Session, verb


@verb
def anatomy(
    run: Session,
    model: ModelLike,
    seen: CorpusLike,
    unseen: CorpusLike,
    *,
    frequencies: CorpusLike | None = None,
    frequent: Probability = 0.2,
    bins: Count = 10,
    orders: Natural = 5,
    ablation_words: Count = 10_000,
    text: TextColumn = "text",
    user: UserColumn = None,
    source: SourceColumn = None,
    format: Format = "auto",
    limit: Limit = None,
    **common: Unpack[Common],
) -> Result:
    """Measure memorization by word frequency, by rank and by hidden unit.

    Three figures compare training text with similar text that the model never read: how probable
    the true words are, for frequent words and the others; at which rank the model lists them, by
    frequency; and how fast accuracy falls when hidden units are set to zero. Memorization is a
    difference between the two texts, usually in rare words.

    Intervals resample whole users if `user` is given, else whole texts. The null of a difference
    is the same difference between two random halves of the unseen text. The result holds no text
    and no user's name.

    Args:
        model: the model to analyse, or its path.
        seen: text that the model was trained on.
        unseen: text of the same source that the model was not trained on.
        frequencies: text whose words are counted; None: `seen`, as in the paper.
        frequent: share of the words that counts as frequent.
        bins: groups of words by frequency.
        orders: random orders in which hidden units are set to zero; 0: no such figure.
        ablation_words: number of words of each text for that figure.
        text: column with the text.
        user: column with the user.
        source: column with the source of a translation, or the line before an answer.
        format: of the data; auto detects it.
        limit: read at most this many texts.
        **common: out, seed, device and monitor, as of every verb.

    Raises:
        ValueError: an argument is out of bounds.
        VestigeError: a model or text cannot be read, or has nothing to compare.
    """
    from vestige.attacks.anatomy import memorization

    plan = memorization.AnatomyPlan(
        frequent=frequent, bins=bins, orders=orders, ablation_words=ablation_words
    )
    loaded = _generator(model, device=run.device)
    run.record_model("model", model, loaded)
    columns: dict[str, Any] = {"format": format, "text": text, "user": user, "limit": limit}
    columns["source_column"] = source
    corpora = {
        role: run.corpus(role, data, **columns)
        for role, data in (("seen", seen), ("unseen", unseen), ("frequencies", frequencies))
        if data is not None
    }
    with run.progress("reading words") as step:
        found = memorization.anatomy(
            loaded,
            corpora["seen"],
            unseen=corpora["unseen"],
            counted=corpora.get("frequencies"),
            plan=plan,
            seed=run.seed,
            progress=step,
        )
    return Result.of(found)


def _generator(model: Any, *, device: str) -> Any:
    """A model of next words, of translation or of dialogue, in evaluation mode.

    Raises:
        ModelError: it cannot be read, or generates no text.
    """
    from vestige.errors import AccessDenied, ModelError
    from vestige.models.checkpoints import load_model, load_seq2seq

    if not isinstance(model, str | PathLike):
        return model.eval()
    try:
        return load_model(fspath(model), device=device)
    except AccessDenied as refused:
        try:
            return load_seq2seq(fspath(model), device=device)
        except ModelError:
            raise refused from None
