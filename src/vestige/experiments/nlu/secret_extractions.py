"""What the attacks make of finished trials: computed once, and found again.

The paper's attack and the trivial one run on all trials of a cell in one batch (stacked models);
searches without gradients are faster one model at a time.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vestige import results
from vestige.attacks.extraction.extraction_result import Extraction
from vestige.attacks.extraction.nlu_extraction import Ranking, extract_secrets
from vestige.attacks.extraction.objective import ask
from vestige.attacks.extraction.secret_attacks import Automatic
from vestige.data.atomic_write import write_text
from vestige.data.secret_pattern import SecretPattern
from vestige.errors import RunError
from vestige.experiments.nlu.trials import Trial
from vestige.models.bilstm_crf import IntentSlotModel
from vestige.models.checkpoints import load_intent_slot
from vestige.models.stacked import stack

BUDGET = 30_000
"""Secrets that are tried one and all: those of four unknown words."""

SAMPLE = 10_000
"""Random secrets that a longer one's rank is estimated from."""

PAPER, TRIVIAL, OURS = "paper", "embedding", "auto"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Trials that are alike, one of their secrets, and an attack on all of them.

    Attributes:
        directory: of all extractions.
        trials: with the same pattern.
        pattern: such as "pin:4".
        weights: "last" or "best".
        attack: "paper", "embedding" or "auto".
        known: of the secret's first words, that are known to who asks (Table 4's area code).
    """

    directory: Path
    trials: tuple[Trial, ...]
    pattern: str
    weights: str
    attack: str
    known: int = 0

    @property
    def path(self) -> Path:
        """Where what was found is kept."""
        first = self.trials[0].directory.name.rpartition("-")[0]
        pattern = self.pattern.replace(":", "") + (f"-known{self.known}" if self.known else "")
        number = len(self.trials)
        return self.directory / f"{first}-{self.weights}-{pattern}-{self.attack}-{number}.json"

    @property
    def identity(self) -> dict[str, Any]:
        """What decides it."""
        trials = [trial.identity for trial in self.trials]
        settings = {"budget": BUDGET, "sample": SAMPLE, "known": self.known}
        asked = {"pattern": self.pattern, "weights": self.weights, "attack": self.attack}
        return {**asked, **settings, "trials": trials}


@dataclass(frozen=True)
class Found:
    """What was found, as its file has it."""

    summary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def extract_all(
    cells: Iterable[Cell],
    *,
    map_fn: Callable[..., Iterable[Path]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Attack those cells that were not yet.

    Raises:
        RunError: one was, with other settings.
    """
    missing = {cell.path: cell for cell in cells if not cell.path.is_file()}
    for done, path in enumerate(map_fn(attack_cell, list(missing.values())), 1):
        say(f"attacked {path.stem} ({done} of {len(missing)})")


def found(cell: Cell) -> Found:
    """What an attacked cell's file has.

    Raises:
        RunError: it was attacked with other settings.
    """
    content = json.loads(cell.path.read_text("utf-8"))
    if content["identity"] != json.loads(results.to_json(cell.identity)):
        raise RunError(
            f"{cell.path} was made with other settings",
            remedy="Choose another --out, or remove that file to have it made again.",
        )
    return Found(content["summary"], content["rows"])


def attack_cell(cell: Cell) -> Path:
    """Attack one cell and write what was found."""
    extraction = _extraction(cell)
    content = {
        "identity": cell.identity,
        "summary": extraction.summary(),
        "rows": list(extraction.rows()),
    }
    write_text(cell.path, results.to_json(content))
    return cell.path


def _extraction(cell: Cell) -> Extraction:
    models = [_model(trial, cell.weights) for trial in cell.trials]
    questions = [_question(trial, cell) for trial in cell.trials]
    patterns = [pattern for pattern, _ in questions]
    truths = [truth for _, truth in questions]
    if cell.attack != OURS:
        return extract_secrets(
            ask(stack(models), patterns),
            attack=cell.attack,
            truths=truths,
            ranking=Ranking(budget=0, sample=0),
            seed=0,
        )
    one_by_one = [
        extract_secrets(
            ask(model, pattern),
            attack=Automatic(budget=BUDGET),
            truths=[truth],
            ranking=Ranking(budget=BUDGET, sample=SAMPLE),
            seed=0,
        )
        for model, pattern, truth in zip(models, patterns, truths, strict=True)
    ]
    return replace(
        one_by_one[0],
        secrets=tuple(secret for one in one_by_one for secret in one.secrets),
        seconds=sum(one.seconds for one in one_by_one),
    )


def _model(trial: Trial, weights: str) -> IntentSlotModel:
    model = load_intent_slot(trial.directory / weights, device="cpu")
    if not isinstance(model, IntentSlotModel):
        raise TypeError(f"{trial.directory} must hold a bi-LSTM, got {type(model).__name__}")
    return model


def _question(trial: Trial, cell: Cell) -> tuple[SecretPattern, tuple[str, ...]]:
    """What is asked, and the answer; the first words of the secret may be known."""
    canary = trial.canary(cell.pattern)
    told = iter(canary.secret[: cell.known])
    words = [next(told, None) if word is None else word for word in canary.parsed.words]
    pattern = replace(
        canary.parsed, words=tuple(words), candidates=canary.parsed.candidates[cell.known :]
    )
    return pattern, canary.secret[cell.known :]
