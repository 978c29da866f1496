"""What `vestige train` says of the epoch that it kept."""

from typing import TYPE_CHECKING, Any

from vestige.cli.terminal import say

if TYPE_CHECKING:
    from vestige.training.history import StopAtPerplexity


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
    if value is None or value > tokens:
        say(
            f"That is worse than guessing among {tokens:,} tokens: take a lower --learning-rate or "
            "more epochs or text; with dp-sgd, larger batches or a larger --epsilon"
        )
