"""Attacks on the secrets of models that are alike, one model after the other."""

from dataclasses import dataclass, replace
from typing import Any

from reproduction.nlu.paper_attacks import ATTACKS
from reproduction.nlu.planted_models import PlantedModel
from reproduction.runner import Trial
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.unknown_words import Extraction, extract_secrets
from vestige.data.canaries.patterns import SecretPattern

BUDGET, SAMPLE = 30_000, 10_000
PAPER, TRIVIAL, OURS = "paper", "embedding", "auto"


@dataclass(frozen=True, kw_only=True)
class SecretExtraction(Trial):
    """One attack on one secret of models that are alike.

    Attributes:
        models: with the same pattern.
        pattern: such as "pin:4".
        weights: "last" or "best".
        attack: "paper", "embedding" or "auto".
        known: of the secret's first words, that are known to the attacker (Table 4's area code).
        budget: secrets that are tried one and all: those of four unknown words.
        sample: random secrets that a longer one's rank is estimated from.
    """

    models: tuple[PlantedModel, ...]
    pattern: str
    weights: str
    attack: str
    known: int = 0
    budget: int = BUDGET
    sample: int = SAMPLE

    def make(self) -> dict[str, Any]:
        """The summary and the rows of the `Extraction`."""
        found = self._extraction()
        return {"summary": found.summary(), "rows": list(found.rows())}

    def _extraction(self) -> Extraction:
        ours = self.attack == OURS
        one_by_one = []
        for planted in self.models:
            pattern, truth = self._asked(planted)
            found = extract_secrets(
                objective_of(planted.model(self.weights), pattern),
                search=None if ours else ATTACKS[self.attack],
                truths=[truth],
                budget=self.budget if ours else 0,
                sample=self.sample if ours else 0,
                seed=0,
            )
            one_by_one.append(found)
        return replace(
            one_by_one[0],
            secrets=tuple(secret for one in one_by_one for secret in one.secrets),
            seconds=sum(one.seconds for one in one_by_one),
        )

    def _asked(self, model: PlantedModel) -> tuple[SecretPattern, tuple[str, ...]]:
        """The pattern that is attacked, and the truth without the words that are known."""
        canary = model.canary(self.pattern)
        known, parsed = iter(canary.secret[: self.known]), canary.parsed
        words = tuple(next(known, None) if word is None else word for word in parsed.words)
        pattern = replace(parsed, words=words, candidates=parsed.candidates[self.known :])
        return pattern, canary.secret[self.known :]
