"""Outputs of models, cached in one folder: no model reads a text twice.

FOLDER/<model>.sqlite    token statistics, see `statistics_cache`
FOLDER/<server>.sqlite   answers of a server
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vestige.attacks.texts.statistics_cache import Nodes, StatisticsCache, Texts, require_ours
from vestige.models.protocols import LanguageModel
from vestige.models.token_statistics import TokenStatistics
from vestige.monitor import Monitor
from vestige.store import KEPT


@dataclass(frozen=True)
class CachedOutputs:
    """Outputs of all models of an audit.

    Attributes:
        folder: of the files.
        monitor: shows progress.
        nodes: that read the texts; None: this machine.
        temporary: the folder is deleted at the end, so that caching statistics is useless.
    """

    folder: Path
    monitor: Monitor
    nodes: Nodes | None = None
    temporary: bool = False

    def answers(self, address: object) -> Path:
        """File with the answers of a server."""
        return self.folder / f"{hashlib.sha256(str(address).encode()).hexdigest()[:16]}.sqlite"

    def statistics(
        self,
        model: LanguageModel,
        identity: Mapping[str, Any],
        texts: Texts,
        *,
        task: str,
        likeliest: int = 20,
    ) -> TokenStatistics:
        """Statistics of each text; the model reads those that are not cached.

        Args:
            model: in evaluation mode.
            identity: whatever determines its outputs, as JSON.
            texts: ids of each, no more than the model reads at once.
            task: name of the progress.
            likeliest: most probable tokens at each position.
        """
        cache = StatisticsCache.of_model(
            None if self.temporary else self.folder,
            identity,
            monitor=self.monitor,
            likeliest=likeliest,
            nodes=self.nodes,
        )
        return cache.of(model, texts, task=task)


@contextmanager
def cached_outputs(
    folder: Path | None, monitor: Monitor, nodes: Nodes | None = None
) -> Iterator[CachedOutputs]:
    """The cached outputs in a folder; None: a temporary folder.

    Raises:
        RunError: the folder holds something else, such as a data set.
    """
    if folder is None:
        with TemporaryDirectory() as temporary:
            yield CachedOutputs(Path(temporary), monitor, nodes, temporary=True)
        return
    require_ours(folder)
    try:
        yield CachedOutputs(folder, monitor, nodes)
    except (KeyboardInterrupt, OSError) as error:
        if any(map(_has_entries, folder.glob("*.sqlite"))):
            error.add_note(KEPT)
        raise


def _has_entries(file: Path) -> bool:
    """Whether a file has answers, or the statistics of a text."""
    try:
        with closing(sqlite3.connect(file)) as database:
            return database.execute("SELECT 1 FROM work LIMIT 1").fetchone() is not None
    except sqlite3.Error:  # answers of a server are in another table
        return True
