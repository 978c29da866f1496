"""`vestige train`: a model from text or utterances, or one that has read more of them."""

from collections.abc import Mapping
from typing import Any

from vestige.cli.terminal import say, show_table
from vestige.cli.verbs import JSON, Output, Verb
from vestige.workflows.train import RepeatedTraining, Trained, train

UTTERANCES = {
    "intent_accuracy": "intent accuracy",
    "slot_f1": "slot F1",
    "exact_match": "intent and all tags",
}
PAIRS = {"accuracy": "word accuracy", "perplexity": "perplexity", "bleu": "BLEU"}


def _show(found: Trained | RepeatedTraining, output: Output) -> None:
    if isinstance(found, RepeatedTraining):
        print(found.directory)
        return
    summary = found.summary()
    task = summary.get("task")
    if task == "nlu":
        _show_utterances(summary)
    elif task is not None:
        rows = _rows(summary, "validation", PAIRS, _number)
        if rows:
            title = f"Validation, {summary['validation_tokens']:,} words"
            show_table(title, ["", "score", "95 % interval"], rows)
    print(found.model)


def _show_utterances(summary: Mapping[str, Any]) -> None:
    if "test_utterances" in summary:
        title = f"Test part, {summary['test_utterances']:,} utterances"
        rows = _rows(summary, "test", UTTERANCES, _percent)
        show_table(title, ["", "score", "95 % interval"], rows)
    elif summary.get("loss") is not None:
        scores = (f"{name} {_percent(summary[key])}" for key, name in UTTERANCES.items())
        say(f"DATA has no test part. On the validation part: {', '.join(scores)}")


def _rows(
    summary: Mapping[str, Any], part: str, scores: Mapping[str, str], shown: Any
) -> list[tuple[str, str, str]]:
    """Name, score and interval of each score that was measured."""
    found = []
    for key, name in scores.items():
        value = summary.get(f"{part}_{key}")
        if value is not None:
            low, high = (summary[f"{part}_{key}_{end}"] for end in ("low", "high"))
            between = "" if low is None else f"{shown(low)} to {shown(high)}"
            found.append((name, shown(value), between))
    return found


def _number(value: float) -> str:
    return f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


VERB = Verb(train, _show, outputs=(JSON,))
