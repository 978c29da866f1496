"""Outputs of models, cached in a folder: no text is read twice by one model.

FOLDER/statistics.sqlite   token statistics, by model and text
FOLDER/<server>.sqlite     answers of a server

A model is identified by its weights, vocabulary and precision, a text by its tokens. So a killed
run resumes, and another audit with other scores or more texts reads only what is new. Nodes of a
Ray cluster read groups of texts; each group is cached when it arrives.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vestige.attacks.texts.statistics_of_parts import joined
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.errors import RunError
from vestige.models.protocols import LanguageModel, choose_device
from vestige.monitor import Monitor
from vestige.store import KEPT, Store

TOKENS = 2**15
"""Tokens of texts that are read and cached together: what a kill can lose."""

FILE = "statistics.sqlite"
_OURS = re.compile(r"statistics\.sqlite.*|[0-9a-f]{16}(\..*)?|\..*")
"""Names in a folder of cached outputs: statistics, answers of a server, hidden files."""

Texts = Sequence[Sequence[int]]
Arrived = Callable[[Texts, TokenStatistics], TokenStatistics]


@dataclass(frozen=True)
class Nodes:
    """Nodes of a Ray cluster that read texts instead of this machine.

    Attributes:
        address: of the cluster's head, as `map_cluster` takes it.
        device: that reads the model; a call on a GPU has the GPU for itself.
    """

    address: str
    device: str

    def __post_init__(self) -> None:
        if self.device == "balanced":
            raise ValueError(
                "`device` balanced does not go with `cluster`: each node holds the whole model"
            )

    @property
    def gpus(self) -> int:
        """GPUs of one call."""
        return int(self.device.startswith("cuda"))


@dataclass(frozen=True)
class CachedOutputs:
    """Outputs of all models of an audit.

    Attributes:
        folder: of the files.
        store: of the token statistics.
        monitor: shows progress.
        nodes: that read the texts; None: this machine.
    """

    folder: Path
    store: Store
    monitor: Monitor
    nodes: Nodes | None = None

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
        """Statistics of each text; the model reads those that are not cached, the shortest first.

        Args:
            model: in evaluation mode.
            identity: whatever determines its outputs, as JSON.
            texts: ids of each, no more than the model reads at once.
            task: name of the progress.
            likeliest: most probable tokens at each position.
        """
        key = json.dumps({**identity, "likeliest": likeliest}, sort_keys=True).encode()
        part = self.store.part(f"{hashlib.sha256(key).hexdigest()[:16]}/")
        names = [hash_of(ids) for ids in texts]
        found = {name: part.get(name) for name in names}
        unread = {name: ids for name, ids in zip(names, texts, strict=True) if found[name] is None}
        groups, done, total = _groups(unread), 0, sum(map(len, unread.values()))
        with self.monitor.progress(task) as step:

            def arrived(group: Texts, read: TokenStatistics) -> TokenStatistics:
                nonlocal done
                own = {hash_of(ids): one for ids, one in zip(group, _each(read), strict=True)}
                found.update(own)
                _write(part, own)
                step(done := done + int(read.offsets[-1]), total)
                return read

            ids = [[unread[name] for name in group] for group in groups]
            for _ in self._read(model, ids, arrived, likeliest):
                pass
        return joined([_statistics(found[name]) for name in names])

    def _read(
        self, model: LanguageModel, groups: Sequence[Texts], arrived: Arrived, likeliest: int
    ) -> Iterator[TokenStatistics]:
        """Statistics of each group; `arrived` is called as soon as a group is read."""
        from vestige.attacks.texts.token_statistics import token_statistics
        from vestige.parallel import map_cluster

        if self.nodes is None:
            for group in groups:
                yield arrived(group, token_statistics(model, group, likeliest=likeliest))
            return
        read = partial(_on_node, model, likeliest, self.nodes.device)
        packed: list[Any] = [[np.asarray(ids, dtype=np.int32) for ids in group] for group in groups]
        yield from map_cluster(
            read, packed, address=self.nodes.address, receive=arrived, gpus=self.nodes.gpus
        )


@contextmanager
def cached_outputs(
    folder: Path | None, monitor: Monitor, nodes: Nodes | None = None
) -> Iterator[CachedOutputs]:
    """The cached outputs in a folder; None: in memory, and gone at the end.

    Raises:
        RunError: the folder holds something else, such as a data set.
    """
    if folder is None:
        with TemporaryDirectory() as temporary, Store() as store:
            yield CachedOutputs(Path(temporary), store, monitor, nodes)
        return
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if other := next((name for name in names if not _OURS.fullmatch(name)), None):
        raise RunError(
            f"{folder} holds {other}, which is not a model's output",
            remedy="Pass a new or empty folder as `statistics`, or none.",
        )
    with Store(folder / FILE, monitor=monitor, shared=True) as store:
        try:
            yield CachedOutputs(folder, store, monitor, nodes)
        except (KeyboardInterrupt, OSError) as error:
            if len(store) or any(file.name != FILE for file in folder.glob("*.sqlite")):
                error.add_note(KEPT)
            raise


def hash_of(ids: Sequence[int]) -> str:
    """Identifies a text by its tokens alone."""
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest()[:32]


def _on_node(model: LanguageModel, likeliest: int, device: str, texts: Texts) -> TokenStatistics:
    """Read texts on a node, which loads the model once."""
    from vestige.attacks.texts.token_statistics import token_statistics

    return token_statistics(model.to(choose_device(device)), texts, likeliest=likeliest)


def _groups(texts: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Names of texts that are read together, of similar length."""
    groups: list[list[str]] = []
    room = 0
    for name in sorted(texts, key=lambda name: (len(texts[name]), name)):
        room -= len(texts[name])
        if room < 0 or not groups:
            groups.append([])
            room = TOKENS - len(texts[name])
        groups[-1].append(name)
    return groups


_COLUMNS = tuple(one.name for one in fields(TokenStatistics) if one.name != "offsets")


def _each(read: TokenStatistics) -> Iterator[dict[str, Any]]:
    """The columns of each text."""
    for start, end in zip(read.offsets[:-1], read.offsets[1:], strict=True):
        yield {name: getattr(read, name)[start:end] for name in _COLUMNS}


def _write(part: Store, texts: Mapping[str, dict[str, Any]]) -> None:
    """Cache a group of texts, all or none of them."""
    with part.transaction():
        for name, columns in texts.items():
            part[name] = columns


def _statistics(columns: Mapping[str, Any]) -> TokenStatistics:
    """The statistics of one text."""
    return TokenStatistics(offsets=np.array([0, len(columns["tokens"])]), **columns)
