"""What `vestige train` says of the epoch that it kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.cli.terminal import say

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.training.history import StopAtPerplexity


JUDGED_BY = "judged_by"
"""Which text judges a model: "validation", or "training" where nothing was held out."""


def usefulness(summary: Mapping[str, Any], *, who: str = "It") -> str | None:
    """What to say of a training whose model is no better than word frequencies; else None.

    Args:
        summary: of a training, one that computed no frequencies included.
        who: the sentence's subject.
    """
    from vestige.training.word_frequencies import FREQUENCIES, is_useless, useless_words

    alone, judged = summary.get(FREQUENCIES), summary.get("validation_perplexity")
    own = summary.get("perplexity") if summary.get(JUDGED_BY) == "training" else judged
    if alone is None or not is_useless(own, alone):
        return None
    return useless_words(own, alone, who=who)


def frequencies(
    training: "EncodedCorpus", held: "EncodedCorpus | None", size: int
) -> dict[str, object]:
    """What word frequencies reach on the text held out; without one, on the training text."""
    from vestige.training.word_frequencies import FREQUENCIES, frequency_perplexity

    alone = frequency_perplexity(training, training if held is None else held, size=size)
    return {FREQUENCIES: alone, JUDGED_BY: "training" if held is None else "validation"}


def trained_summary(model: str | Path) -> Mapping[str, Any]:
    """What a training says of itself; nothing where the model is none of `vestige train`."""
    from vestige import results
    from vestige.workflows.training_directory import RUN

    run = Path(model) / RUN
    return results.load(run).summary if (run / "summary.json").is_file() else {}


def say_kept(summary: dict[str, Any], tokens: int, stop: "StopAtPerplexity | None") -> None:
    """Tell epoch and perplexity, and what to change where they are not what was hoped for.

    Args:
        summary: of the training.
        tokens: in the vocabulary; guessing among them has that perplexity.
        stop: when it should have ended.
    """
    judged = summary["validation_perplexity"]
    kind = "perplexity" if judged is None else "validation perplexity"
    value = summary["perplexity"] if judged is None else judged
    if summary["stopped"]:
        say(f"Stopped after {summary['steps']:,} steps, as asked by --stop-at-perplexity")
    elif stop is not None and (judged is None or judged > stop.perplexity):
        say(f"Perplexity {stop.perplexity:g} was not reached: give more --epochs to get there")
    if value is None:  # infinite, or no lot drew anything
        say(f"Epoch {summary['epoch']:.3g} kept, without a finite {kind}")
    else:
        shown = f"{value:.1f}" if value < 1e6 else f"{value:.3g}"
        say(f"Epoch {summary['epoch']:.3g} kept, {kind} {shown}")
    warning = usefulness(summary)
    if warning is not None:
        say(warning)
    elif value is None or value > tokens:
        say(
            f"That is worse than guessing among {tokens:,} tokens: take a lower --learning-rate or "
            "more epochs or text; with dp-sgd, larger batches or a larger --epsilon"
        )
