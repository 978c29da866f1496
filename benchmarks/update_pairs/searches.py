"""The searches of every method, each kept in a file of its own and not run again."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from update_pairs.methods import METHODS
from update_pairs.protocol import Found, Row
from vestige.data.writing import write_text
from vestige.models.checkpoints import load_model
from vestige.models.protocols import LanguageModel

BUDGET = 50_000
"""Forward tokens of both models together in one search."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The folders of pairs and of what was found in them.

    Attributes:
        pairs: as `make` fills it.
        searches: a folder a method.
        budget: forward tokens of a search that is run.
    """

    pairs: Path
    searches: Path
    budget: int = BUDGET

    def names(self) -> list[str]:
        """Pairs that are whole."""
        return sorted(file.parent.name for file in self.pairs.glob("*/facts.json"))

    def file(self, method: str, pair: str, role: str, seed: int) -> Path:
        """Where one search is kept: `role` is "after" or "null"."""
        return self.searches / method.replace(" ", "-") / f"{pair}-{role}-{seed}.json"

    def found(self, method: str, pair: str, role: str, seed: int) -> Found | None:
        """What a search gave; None where it was not run."""
        file = self.file(method, pair, role, seed)
        if not file.is_file():
            return None
        kept = json.loads(file.read_text("utf-8"))
        return Found(
            rows=tuple(Row(tuple(tokens), *rest) for tokens, *rest in kept["rows"]),
            before=kept["before"],
            after=kept["after"],
            scores=tuple(kept["null_scores"]),
        )

    def search(
        self,
        methods: Iterable[str],
        roles: Iterable[str],
        seeds: Iterable[int],
        *,
        pairs: Iterable[str],
    ) -> Iterator[str]:
        """Run what is missing, pair by pair.

        Yields:
            A line for each search that was run.
        """
        methods, roles, seeds = list(methods), list(roles), list(seeds)
        for pair in pairs:
            before: LanguageModel | None = None
            for role in roles:
                wanted = [
                    (method, seed)
                    for method in methods
                    for seed in seeds
                    if not self.file(method, pair, role, seed).is_file()
                ]
                if not wanted:
                    continue
                before = before or load_model(self.pairs / pair / "before")
                later = load_model(self.pairs / pair / role)
                for method, seed in wanted:
                    begun = time.perf_counter()
                    found = METHODS[method](before, later, self.budget, seed)
                    seconds = time.perf_counter() - begun
                    self._keep(self.file(method, pair, role, seed), found, seconds)
                    read = found.before + found.after
                    yield (
                        f"{method}, {pair} {role}, seed {seed}: "
                        f"{len(found.rows)} rows, {read:,} forward tokens, {seconds:.0f} s"
                    )

    def _keep(self, file: Path, found: Found, seconds: float) -> None:
        kept = {
            "rows": [[list(row.tokens), row.score, row.fragment] for row in found.rows],
            "null_scores": sorted(found.null_scores, reverse=True)[:1000],
            "before": found.before,
            "after": found.after,
            "seconds": seconds,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(kept))
