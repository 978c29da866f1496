"""What models said of the texts of an audit, and scores over the first tokens of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.monitor import Monitor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.texts.cut_scores import Floats, Whole
    from vestige.attacks.texts.statistics_cache import Nodes
    from vestige.attacks.texts.text_audit import Scored
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.data.corpus import Corpus
    from vestige.workflows.text_models import TextModels

Score = Callable[..., "Floats"]
"""Of statistics by pass, such as `target` and `base`; as many scores as texts."""


@dataclass(frozen=True)
class AskedTexts:
    """What the models said of all texts.

    Attributes:
        models: that were asked.
        lists: the texts by role: audited, reference, used.
        said: by role of the texts, then by pass: "target", "base" or another of the target's.
        folder: where statistics are kept; None keeps nothing.
        monitor: told how far it is.
        nodes: of a cluster, which are asked in place of this machine.
        told: by role, (t,) which tokens of the texts `said` has; None where it has all.
        shown: of the target so many likeliest tokens are known alone; None where all are.
        read: tokens of the first list that were scored, and all that it has.
    """

    models: "TextModels"
    lists: "Mapping[str, Corpus]"
    said: "Mapping[str, Mapping[str, TokenStatistics]]"
    folder: Path | None
    monitor: Monitor
    nodes: "Nodes | None" = None
    told: "Mapping[str, NDArray[np.bool_]] | None" = None
    shown: int | None = None
    read: tuple[int, int] = (0, 0)

    @classmethod
    def of(
        cls,
        models: "TextModels",
        lists: "Mapping[str, Corpus]",
        folder: Path | None,
        monitor: Monitor,
        nodes: "Nodes | None" = None,
    ) -> "AskedTexts":
        """Ask every model about every text, or find what it said."""
        said = {
            role: models.statistics(rows, folder, of=f"the {role}", monitor=monitor, nodes=nodes)
            for role, rows in models.encoded_lists(lists).items()
        }
        read = models.read_of(list(next(iter(lists.values()))))
        return cls(models, lists, said, folder, monitor, nodes, read=read)

    @property
    def authors(self) -> dict[str, Sequence[str] | None]:
        """The author of each text, where both sides name them."""
        named = all(self.lists[role].users is not None for role in ("texts", "reference"))
        return {role: corpus.users if named else None for role, corpus in self.lists.items()}

    def units(self, role: str) -> Sequence[str]:
        """The author of each text, or its position."""
        return self.authors[role] or [str(place) for place in range(len(self.lists[role]))]

    def by_model(self, *roles: str) -> "dict[str, list[TokenStatistics]]":
        """What each model said of the texts of some lists, or of all."""
        lists = [self.said[role] for role in roles or self.said]
        return {who: [own[who] for own in lists] for who in lists[0]}

    def of_base(self) -> "AskedTexts":
        """The same with the base in the target's place."""
        return replace(self, said={r: {"target": said["base"]} for r, said in self.said.items()})

    def joined_by(self, name: str, said: "Mapping[str, TokenStatistics]") -> "AskedTexts":
        """With one more pass, by role."""
        return replace(
            self, said={role: {**own, name: said[role]} for role, own in self.said.items()}
        )

    def lengths(self, role: str) -> list[int]:
        """Tokens of each text."""
        import numpy as np

        found: list[int] = np.diff(self.said[role]["target"].offsets).tolist()
        return found

    def scored(self, score: Score) -> "dict[str, Scored]":
        """Every text over its first tokens, by role."""
        from vestige.attacks.texts.statistics_of_parts import first_tokens

        def over(role: str, places: "Whole", tokens: int) -> "Floats":
            said = self.said[role].items()
            return score(**{name: first_tokens(one, places, tokens) for name, one in said})

        return self._cut(over)

    def scored_by_tokens(self, values: "Mapping[str, Floats]") -> "dict[str, Scored]":
        """The mean score of every text's first tokens, from those (t,) of tokens, by role."""
        import numpy as np

        sums = {role: np.concatenate([[0.0], np.cumsum(own)]) for role, own in values.items()}

        def over(role: str, places: "Whole", tokens: int) -> "Floats":
            first = self.said[role]["target"].offsets[places]
            return np.asarray((sums[role][first + tokens] - sums[role][first]) / tokens)

        return self._cut(over)

    def _cut(self, score: "Callable[[str, Whole, int], Floats]") -> "dict[str, Scored]":
        from functools import partial

        from vestige.attacks.texts.cut_scores import CutScores, ladder
        from vestige.attacks.texts.text_audit import Scored

        rungs = ladder(max(max(self.lengths(role)) for role in self.said))
        return {
            role: Scored(
                CutScores.of(partial(score, role), self.lengths(role), rungs), self.authors[role]
            )
            for role in self.said
        }

    def summary(self) -> dict[str, object]:
        """How long the texts are, in tokens."""
        from statistics import median

        return {f"{role}_tokens": median(self.lengths(role)) for role in ("texts", "reference")}
