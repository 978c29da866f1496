"""Token statistics of texts under a model, computed once.

A folder has one store for each model, named after a hash of its weights, vocabulary and precision.
A text is found by its tokens, whatever file it came from, so that a killed run resumes, and a
second command with other scores or more texts computes only what is new. Nodes of a Ray cluster
compute groups of texts; each group is written as it arrives.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vestige.errors import RunError
from vestige.models.protocols import LanguageModel, choose_device
from vestige.models.token_statistics import TokenStatistics, first_tokens, joined, token_statistics
from vestige.monitor import Monitor
from vestige.parallel import map_cluster
from vestige.store import Store

TOKENS = 2**15
"""In a group of texts: what a kill may cost."""

Texts = Sequence[Sequence[int]]

_COLUMNS = tuple(one.name for one in fields(TokenStatistics) if one.name != "offsets")
_OURS = re.compile(r"[0-9a-f]{16}(\..*)?|\..*")
"""Names in a folder: of a model, of the answers of an endpoint, hidden ones."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of a Ray cluster that compute statistics.

    Attributes:
        address: of the cluster's head, as `map_cluster` takes it.
        device: on which each call reads the model; a call on a GPU has the GPU for itself.
    """

    address: str
    device: str

    def __post_init__(self) -> None:
        if self.device == "balanced":
            raise ValueError(
                "`device` balanced must be left out with `cluster`, whose nodes each load a "
                "whole model"
            )

    @property
    def gpus(self) -> int:
        """GPUs that a call takes."""
        return int(self.device.startswith("cuda"))


@dataclass(frozen=True)
class StatisticsCache:
    """Statistics of texts under one model.

    Attributes:
        file: of this model; None caches nothing.
        monitor: gets the progress, and a line about a damaged file.
        likeliest: how many of the most probable tokens are stored at each position.
        nodes: that compute in place of this machine.
    """

    file: Path | None
    monitor: Monitor
    likeliest: int = 20
    nodes: Nodes | None = None

    @classmethod
    def of_model(
        cls,
        folder: Path | None,
        model: Mapping[str, Any],
        *,
        monitor: Monitor,
        likeliest: int = 20,
        nodes: Nodes | None = None,
    ) -> "StatisticsCache":
        """The cache of a model, in a folder that other models share.

        Args:
            folder: of the caches; None caches nothing.
            model: all that determines the statistics, such as hashes, as JSON.

        Raises:
            RunError: the folder holds something else, such as a data set.
        """
        if folder is None:
            return cls(None, monitor, likeliest, nodes)
        folder = Path(folder)
        require_ours(folder)
        identity = json.dumps({**model, "likeliest": likeliest, "columns": _COLUMNS})
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return cls(folder / f"{name}.sqlite", monitor, likeliest, nodes)

    def of(self, model: LanguageModel, texts: Texts, *, task: str) -> TokenStatistics:
        """Statistics of each text; what is not cached is computed, the shortest texts first.

        Args:
            model: the one of the file.
            texts: ids of each, at most as many as the model reads at once.
            task: what the monitor shows.
        """
        names = [hash_of(ids) for ids in texts]
        wanted = dict(zip(names, texts, strict=True))
        with Store(self.file, monitor=self.monitor, shared=True) as store:
            entries = {name: entry for name in wanted if (entry := store.get(name)) is not None}
            found, parts = list(entries), _of_entries(list(entries.values()))
            groups = _groups({name: ids for name, ids in wanted.items() if name not in entries})
            del entries
            for group, computed in self._computed(model, wanted, groups, store, task):
                parts.append(computed)
                found += group
        place = {name: number for number, name in enumerate(found)}
        return first_tokens(joined(parts), [place[name] for name in names])

    def _computed(
        self,
        model: LanguageModel,
        texts: Mapping[str, Sequence[int]],
        groups: list[list[str]],
        store: Store,
        task: str,
    ) -> Iterator[tuple[list[str], TokenStatistics]]:
        """Groups of texts and their statistics, in order; each is written when it arrives."""
        total = sum(len(texts[name]) for group in groups for name in group)
        done = 0
        with self.monitor.progress(task) as step:

            def arrived(group: Texts, computed: TokenStatistics) -> TokenStatistics:
                nonlocal done
                self._write(store, [hash_of(ids) for ids in group], computed)
                step(done := done + int(computed.offsets[-1]), total)
                return computed

            grouped = [[texts[name] for name in group] for group in groups]
            yield from zip(groups, self._asked(model, grouped, arrived), strict=True)

    def _asked(
        self,
        model: LanguageModel,
        groups: Sequence[Texts],
        arrived: Callable[[Texts, TokenStatistics], TokenStatistics],
    ) -> Iterator[TokenStatistics]:
        """Statistics of each group in order; nodes call `arrived` in any order."""
        if self.nodes is None:
            for group in groups:
                yield arrived(group, token_statistics(model, group, likeliest=self.likeliest))
            return
        ask = partial(_ask, model, self.likeliest, self.nodes.device)
        packed: list[Any] = [[np.asarray(ids, dtype=np.int32) for ids in group] for group in groups]
        yield from map_cluster(
            ask, packed, address=self.nodes.address, receive=arrived, gpus=self.nodes.gpus
        )

    def _write(self, store: Store, names: Sequence[str], computed: TokenStatistics) -> None:
        if self.file is None:
            return  # nothing will read it again
        with store.transaction():
            for place, name in enumerate(names):
                own = slice(*computed.offsets[place : place + 2].tolist())
                store[name] = {column: getattr(computed, column)[own] for column in _COLUMNS}


def require_ours(folder: Path) -> None:
    """Refuse a folder with other files than cached outputs of models.

    Raises:
        RunError: there is one.
    """
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if other := next((name for name in names if not _OURS.fullmatch(name)), None):
        raise RunError(
            f"{folder} holds {other}, which is not a model's output",
            remedy="Pass a new or empty folder as `statistics`, or none.",
        )


def hash_of(ids: Sequence[int]) -> str:
    """The name of a text in a cache, from its tokens alone."""
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest()[:32]


def _ask(model: LanguageModel, likeliest: int, device: str, texts: Texts) -> TokenStatistics:
    """Compute on a node, which reads the model once."""
    return token_statistics(model.to(choose_device(device)), texts, likeliest=likeliest)


def _of_entries(entries: Sequence[Mapping[str, Any]]) -> list[TokenStatistics]:
    """Statistics of texts from their entries in a store, together."""
    if not entries:
        return []
    lengths = [len(entry["tokens"]) for entry in entries]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = {name: np.concatenate([entry[name] for entry in entries]) for name in _COLUMNS}
    return [TokenStatistics(offsets=offsets, **columns)]


def _groups(texts: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Names of texts of similar length that are computed together."""
    groups: list[list[str]] = []
    room = 0
    for name in sorted(texts, key=lambda name: (len(texts[name]), name)):
        room -= len(texts[name])
        if room < 0 or not groups:
            groups.append([])
            room = TOKENS - len(texts[name])
        groups[-1].append(name)
    return groups
