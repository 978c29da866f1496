"""The texts of an audit with their statistics, and scores over the first tokens of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np

from vestige.attacks.texts.cached_outputs import CachedOutputs
from vestige.attacks.texts.cut_scores import CutScores, Floats, Whole, ladder
from vestige.attacks.texts.readings import Readings
from vestige.attacks.texts.statistics_of_parts import first_tokens
from vestige.attacks.texts.text_audit import Scored
from vestige.attacks.texts.text_models import TextModels
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.data.corpus import Corpus

Score = Callable[..., Floats]
"""Of statistics by pass, such as `target` and `base`; one score per text."""


@dataclass(frozen=True)
class AuditedTexts:
    """Lists of texts and what the models output for them.

    Attributes:
        lists: by role: "texts", "reference" and perhaps "used".
        readings: of these lists.
        models: the local ones, which can read further texts.
        outputs: that are cached.
    """

    lists: Mapping[str, Corpus]
    readings: Readings
    models: TextModels
    outputs: CachedOutputs

    @property
    def authors(self) -> dict[str, Sequence[str] | None]:
        """The author of each text, if both sides name them."""
        named = all(self.lists[role].users is not None for role in ("texts", "reference"))
        return {role: corpus.users if named else None for role, corpus in self.lists.items()}

    def units(self, role: str) -> Sequence[str]:
        """The author of each text, or its position."""
        return self.authors[role] or [str(place) for place in range(len(self.lists[role]))]

    def lengths(self, role: str) -> list[int]:
        """Tokens of each text."""
        found: list[int] = np.diff(self.readings.statistics[role]["target"].offsets).tolist()
        return found

    def base_as_target(self) -> "AuditedTexts":
        """The same with the base in the target's place."""
        read = self.readings.statistics.items()
        return self._with({role: {"target": own["base"]} for role, own in read})

    def with_pass(self, name: str, statistics: Mapping[str, TokenStatistics]) -> "AuditedTexts":
        """The same with one more pass over the texts, by role."""
        read = self.readings.statistics.items()
        return self._with({role: {**own, name: statistics[role]} for role, own in read})

    def _with(self, statistics: dict[str, dict[str, TokenStatistics]]) -> "AuditedTexts":
        return replace(self, readings=replace(self.readings, statistics=statistics))

    def scored(self, score: Score) -> dict[str, Scored]:
        """Every text over its first tokens, by role."""

        def over(role: str, places: Whole, tokens: int) -> Floats:
            passes = self.readings.statistics[role].items()
            return score(**{name: first_tokens(one, places, tokens) for name, one in passes})

        return self._cut(over)

    def scored_by_tokens(self, values: Mapping[str, Floats]) -> dict[str, Scored]:
        """The mean of (t,) scores of tokens over every text's first tokens, by role."""
        sums = {role: np.concatenate([[0.0], np.cumsum(own)]) for role, own in values.items()}

        def over(role: str, places: Whole, tokens: int) -> Floats:
            first = self.readings.statistics[role]["target"].offsets[places]
            return np.asarray((sums[role][first + tokens] - sums[role][first]) / tokens)

        return self._cut(over)

    def _cut(self, score: Callable[[str, Whole, int], Floats]) -> dict[str, Scored]:
        roles = self.readings.statistics
        rungs = ladder(max(max(self.lengths(role)) for role in roles))
        return {
            role: Scored(
                CutScores.of(partial(score, role), self.lengths(role), rungs), self.authors[role]
            )
            for role in roles
        }

    def median_lengths(self) -> dict[str, object]:
        """Median tokens of a text, by role."""
        return {f"{role}_tokens": median(self.lengths(role)) for role in ("texts", "reference")}
