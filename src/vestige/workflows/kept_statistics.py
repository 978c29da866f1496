"""Token statistics of texts under a model, kept in a folder: a text is asked about once.

FOLDER/<model>/<texts>.npz   statistics of some texts, and a hash of the tokens of each

What names the model is a hash of its weights, vocabulary and precision. A text is found by its
tokens, whatever file it came from and whatever else was asked with it, so that a killed run goes
on and a second command, of other scores or with more texts, asks nothing again. Nodes of a Ray
cluster are asked for groups of texts, of which each is written here as it arrives.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vestige.data.atomic_write import replacing
from vestige.errors import RunError
from vestige.monitor import Monitor
from vestige.results import to_json

if TYPE_CHECKING:
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.models.protocols import LanguageModel

TOKENS = 2**15
"""Of texts that are asked about and written together: what a kill may cost."""

Texts = Sequence[Sequence[int]]

_OF_A_MODEL = re.compile(r"[0-9a-f]{16}(\..*)?|\..*")
"""Names in a folder of statistics: of a model, of the answers of an endpoint, hidden ones."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of a Ray cluster that are asked.

    Attributes:
        address: of the cluster's head, as `map_cluster` takes it.
        device: on which each call reads the model; of a GPU it has one for itself.
    """

    address: str
    device: str

    def __post_init__(self) -> None:
        if self.device == "balanced":
            raise ValueError(
                "`device` balanced must be left out with `cluster`, whose nodes each hold a whole "
                "model"
            )

    @property
    def gpus(self) -> int:
        """GPUs that a call takes."""
        return int(self.device.startswith("cuda"))


def _ask(model: "LanguageModel", likeliest: int, device: str, texts: Texts) -> "TokenStatistics":
    """Ask on a node, which reads the model once."""
    from vestige.attacks.texts.token_statistics import token_statistics
    from vestige.models.protocols import choose_device

    return token_statistics(model.to(choose_device(device)), texts, likeliest=likeliest)


@dataclass(frozen=True)
class KeptStatistics:
    """Statistics of texts under one model.

    Attributes:
        folder: of this model; None keeps nothing.
        monitor: told how far it is, and of a damaged file.
        likeliest: how many of the likeliest tokens are kept of each place.
        nodes: that are asked in place of this machine.
    """

    folder: Path | None
    monitor: Monitor
    likeliest: int = 20
    nodes: Nodes | None = None

    @classmethod
    def beside(
        cls,
        folder: Path | None,
        model: Mapping[str, Any],
        *,
        monitor: Monitor,
        likeliest: int = 20,
        nodes: Nodes | None = None,
    ) -> "KeptStatistics":
        """Those of a model, in a folder that other models share.

        Args:
            model: whatever decides its answers, such as hashes, as JSON has it.

        Raises:
            RunError: the folder holds something else, such as a data set.
        """
        if strange := _strange(folder):
            raise RunError(
                f"{folder} holds {strange}, which is no token statistics",
                remedy="Name a new or empty directory for `statistics`, or none.",
            )
        name = hashlib.sha256(to_json({**model, "likeliest": likeliest}).encode()).hexdigest()
        return cls(folder and Path(folder) / name[:16], monitor, likeliest, nodes)

    def of(self, model: "LanguageModel", texts: Texts, *, task: str) -> "TokenStatistics":
        """Statistics of each text; what is not kept is asked, the shortest texts first.

        Args:
            model: the one of the folder.
            texts: ids of each, as many as the model reads at once, or fewer.
            task: what the monitor is told.
        """
        from vestige.attacks.texts.statistics_of_parts import first_tokens, joined

        names = [hash_of(ids) for ids in texts]
        parts, places = self._kept(set(names))
        wanted = {name: ids for name, ids in zip(names, texts, strict=True) if name not in places}
        todo = sum(map(len, wanted.values()))
        groups, done = _groups(wanted), 0
        with self.monitor.progress(task) as step:

            def arrived(group: Texts, asked: "TokenStatistics") -> "TokenStatistics":
                nonlocal done
                self._write([hash_of(ids) for ids in group], asked)
                step(done := done + int(asked.offsets[-1]), todo)
                return asked

            for group, asked in zip(
                groups,
                self._asked(model, [[wanted[name] for name in group] for group in groups], arrived),
                strict=True,
            ):
                first = sum(len(part.offsets) - 1 for part in parts)
                places |= {name: first + place for place, name in enumerate(group)}
                parts.append(asked)
        return first_tokens(joined(parts), [places[name] for name in names])

    def _asked(
        self,
        model: "LanguageModel",
        groups: Sequence[Texts],
        arrived: "Callable[[Texts, TokenStatistics], TokenStatistics]",
    ) -> "Iterator[TokenStatistics]":
        """Statistics of each group in order; on nodes, `arrived` hears of them as they come."""
        from vestige.attacks.texts.token_statistics import token_statistics
        from vestige.parallel import map_cluster

        if self.nodes is None:
            for group in groups:
                yield arrived(group, token_statistics(model, group, likeliest=self.likeliest))
            return
        ask = partial(_ask, model, self.likeliest, self.nodes.device)
        packed: list[Any] = [[np.asarray(ids, dtype=np.int32) for ids in group] for group in groups]
        yield from map_cluster(
            ask, packed, address=self.nodes.address, receive=arrived, gpus=self.nodes.gpus
        )

    def _kept(self, names: set[str]) -> "tuple[list[TokenStatistics], dict[str, int]]":
        """What files keep of these texts, and the place of each in it."""
        parts: list[TokenStatistics] = []
        places: dict[str, int] = {}
        before = 0
        for path in sorted(self.folder.glob("*.npz")) if self.folder else ():
            if (found := _read(path, names)) is None:
                self.monitor.log(f"{path} is damaged: these texts are asked about again")
                continue
            own, part = found
            if part is None:
                continue
            places |= {name: before + place for place, name in enumerate(own)}
            parts.append(part)
            before += len(own)
        return parts, places

    def _write(self, names: Sequence[str], asked: "TokenStatistics") -> None:
        if self.folder is None:
            return
        key = hashlib.sha256("".join(names).encode()).hexdigest()[:32]
        with replacing(self.folder / f"{key}.npz") as file:
            np.savez(file, texts=np.array(names, dtype="S32"), **asdict(asked))


def hash_of(ids: Sequence[int]) -> str:
    """What a text is found by: of its tokens, and of nothing else."""
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest()[:32]


def _strange(folder: Path | None) -> str | None:
    """The first name in a folder that none of its models has; None where there is none."""
    found = sorted(path.name for path in folder.iterdir()) if folder and folder.is_dir() else []
    return next((name for name in found if not _OF_A_MODEL.fullmatch(name)), None)


def _groups(texts: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Names of texts that are asked about together, of like length."""
    groups: list[list[str]] = []
    room = 0
    for name in sorted(texts, key=lambda name: (len(texts[name]), name)):
        room -= len(texts[name])
        if room < 0 or not groups:
            groups.append([])
            room = TOKENS - len(texts[name])
        groups[-1].append(name)
    return groups


def _read(path: Path, wanted: set[str]) -> "tuple[list[str], TokenStatistics | None] | None":
    """Names of texts and, where some are wanted, statistics; None where a file is damaged."""
    from vestige.attacks.texts.token_statistics import TokenStatistics

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            names = [name.decode() for name in found["texts"].tolist()]
            if not wanted & set(names):
                return names, None
            kept = {name: found[name] for name in found.files if name != "texts"}
        part = TokenStatistics(**kept)
        whole = len(part.offsets) == len(names) + 1 and part.offsets[0] == 0
        tokens = part.offsets[-1]
    except Exception:  # BadZipFile, zlib.error, struct.error, TypeError, ...: by which byte it is
        return None
    alike = all(len(column) == tokens for name, column in kept.items() if name != "offsets")
    return (names, part) if whole and alike else None
