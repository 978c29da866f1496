"""Statistics of every token of texts, the input of membership scores, and their cache.

FOLDER/<model>.sqlite    token statistics of single texts
FOLDER/<server>.sqlite   answers of a server (`served_texts`)

The file name is a hash of weights, vocabulary and precision, and the key of a text is a hash of its
tokens, so no model reads a text twice. A killed run resumes, and a second command with other scores
or more texts computes only what is new. Nodes of a Ray cluster compute groups of texts; each group
is written when it arrives.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.errors import RunError
from vestige.models.predictions import Progress, log_prob, measure, moments, rank, top
from vestige.models.prefix import ReadContext
from vestige.models.protocols import LanguageModel, choose_device
from vestige.models.reading import pack, require_within_limit
from vestige.monitor import Monitor
from vestige.parallel import map_cluster
from vestige.store import KEPT, Store

GROUP_TOKENS = 2**15
"""Tokens of texts that are computed and written together: a kill loses at most these."""
RANKS_FROM = 1
"""The first rank. Files of older versions, with ranks from 0, are not read."""

Texts = Sequence[Sequence[int]]

_OUTPUT_FILE = re.compile(r"[0-9a-f]{16}(\..*)?|\..*")
"""File names in a folder of outputs: of models or servers, and hidden files."""


@dataclass(frozen=True, kw_only=True)
class TokenStatistics:
    """Statistics of every token of n texts, t tokens in all.

    Attributes:
        offsets: (n + 1,) int64; text i has the tokens offsets[i] to offsets[i + 1].
        tokens: (t,) int32 ids.
        log_probs: (t,) float32, natural, of each token after the earlier ones of its text.
        ranks: (t,) int32, 1 for the most probable; ties by id.
        means, deviations: (t,) float32, of the log-probability of a token sampled from the model.
        likeliest, likeliest_log_probs: (t, k) int32 and float32, the k most probable tokens.
    """

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    ranks: NDArray[np.int32]
    means: NDArray[np.float32]
    deviations: NDArray[np.float32]
    likeliest: NDArray[np.int32]
    likeliest_log_probs: NDArray[np.float32]


_COLUMNS = tuple(field.name for field in fields(TokenStatistics) if field.name != "offsets")


def token_statistics(
    model: LanguageModel,
    texts: Texts,
    *,
    likeliest: int = 0,
    progress: Progress | None = None,
) -> TokenStatistics:
    """Statistics of every token, from one pass over texts of ids, in evaluation mode."""
    packed = pack(texts)
    require_within_limit(model, packed)
    statistics = [moments, log_prob, rank, *([top(likeliest)] if likeliest else [])]
    context = ReadContext(model.first_token)
    columns = measure(model, packed, statistics, context=context, progress=progress)
    empty = (len(packed.tokens), 0)
    columns.setdefault("likeliest", np.empty(empty, np.int32))
    columns.setdefault("likeliest_log_probs", np.empty(empty, np.float32))
    return TokenStatistics(offsets=packed.offsets, tokens=packed.tokens, **columns)


def first_tokens(
    statistics: TokenStatistics,
    texts: ArrayLike,
    tokens: ArrayLike | None = None,
) -> TokenStatistics:
    """Statistics of the first tokens of texts: they equal those of shortened texts.

    Args:
        texts: (k,) indices of texts, in [0, n).
        tokens: most tokens of each text, one number or (k,); None: all.
    """
    index = np.asarray(texts, dtype=np.int64)
    starts, lengths = statistics.offsets[index], np.diff(statistics.offsets)[index]
    if tokens is not None:
        lengths = np.minimum(lengths, tokens)
    offsets = _offsets(lengths)
    positions = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return TokenStatistics(
        offsets=offsets, **{name: getattr(statistics, name)[positions] for name in _COLUMNS}
    )


def joined(parts: Sequence[TokenStatistics]) -> TokenStatistics:
    """The statistics of the texts of all parts, in order."""
    return TokenStatistics(
        offsets=_offsets(np.concatenate([np.diff(part.offsets) for part in parts])),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS},
    )


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass(frozen=True)
class Nodes:
    """Nodes of a Ray cluster that compute statistics; each call uses a whole GPU."""

    address: str
    device: str

    def __post_init__(self) -> None:
        if self.device == "balanced":
            raise ValueError(
                "`device` balanced must be left out with `cluster`, whose nodes each load a "
                "whole model"
            )


@dataclass(frozen=True)
class CachedOutputs:
    """Outputs of all models of an audit, in a folder; a temporary folder gets no statistics.

    `nodes` read the texts; None: this machine.
    """

    folder: Path
    monitor: Monitor
    nodes: Nodes | None = None
    temporary: bool = False

    def answers(self, address: object) -> Path:
        """File with the answers of a server."""
        return self.folder / f"{_digest(str(address), 16)}.sqlite"

    def statistics(
        self, model: LanguageModel, recorded: object, texts: Texts, *, task: str, likeliest: int = 0
    ) -> TokenStatistics:
        """Statistics of each text; the model reads the uncached texts, the shortest first.

        Args:
            model: in evaluation mode.
            recorded: its provenance, with hashes.
            texts: ids of each, at most as many as the model reads at once.
            task: name of the progress.
            likeliest: most probable tokens at each position.
        """
        keys = [_key(ids) for ids in texts]
        unique = dict(zip(keys, texts, strict=True))
        file = None if self.temporary else self._file(model, recorded, likeliest)
        with Store(file, monitor=self.monitor, shared=True) as store:
            entries = {key: entry for key in unique if (entry := store.get(key)) is not None}
            order, parts = list(entries), [_from_entries(list(entries.values()))] if entries else []
            missing = {key: ids for key, ids in unique.items() if key not in entries}
            del entries  # free the memory: as large as the parts
            for group, computed in self._computed(model, missing, likeliest, store, task):
                order += group
                parts.append(computed)
        index = {key: text for text, key in enumerate(order)}
        return first_tokens(joined(parts), [index[key] for key in keys])

    def _file(self, model: LanguageModel, recorded: object, likeliest: int) -> Path:
        """Its name covers everything that determines the statistics, but not the model's path."""
        record = dict(recorded) if isinstance(recorded, dict) else {}
        identity = {
            "sha256": record.get("sha256"),
            "base": (record.get("base") or {}).get("sha256"),
            "vocabulary": model.vocabulary.fingerprint(),
            "outputs": model.vocab_size,
            "precision": str(getattr(next(iter(model.parameters()), None), "dtype", None)),
            "likeliest": likeliest,
            "columns": _COLUMNS,
            "ranks from": RANKS_FROM,
        }
        return self.folder / f"{_digest(json.dumps(identity), 16)}.sqlite"

    def _computed(
        self,
        model: LanguageModel,
        texts: Mapping[str, Sequence[int]],
        likeliest: int,
        store: Store,
        task: str,
    ) -> Iterator[tuple[list[str], TokenStatistics]]:
        """Groups of texts with their statistics, in order; nodes finish groups in any order."""
        groups = _groups(texts)
        rows: list[Any] = [[texts[key] for key in group] for group in groups]
        total, done = sum(map(len, texts.values())), 0
        with self.monitor.progress(task) as report:

            def store_group(group: Texts, computed: TokenStatistics) -> TokenStatistics:
                nonlocal done
                if not self.temporary:
                    _write(store, group, computed)
                report(done := done + int(computed.offsets[-1]), total)
                return computed

            if self.nodes is None:
                compute = partial(token_statistics, model, likeliest=likeliest)
                results: Iterator[Any] = (store_group(group, compute(group)) for group in rows)
            else:
                packed: list[Any] = [[np.asarray(ids, np.int32) for ids in group] for group in rows]
                results = map_cluster(
                    partial(_on_node, model, likeliest, self.nodes.device),
                    packed,
                    address=self.nodes.address,
                    receive=store_group,
                    gpus=int(self.nodes.device.startswith("cuda")),
                )
            yield from zip(groups, results, strict=True)


@contextmanager
def cached_outputs(
    folder: Path | None, monitor: Monitor, nodes: Nodes | None = None
) -> Iterator[CachedOutputs]:
    """The cached outputs in a folder; None: a temporary one.

    Raises:
        RunError: the folder holds other files, such as a data set.
    """
    if folder is None:
        with TemporaryDirectory() as temporary:
            yield CachedOutputs(Path(temporary), monitor, nodes, temporary=True)
        return
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if other := next((name for name in names if not _OUTPUT_FILE.fullmatch(name)), None):
        raise RunError(
            f"{folder} holds {other}, which is not an output of a model",
            remedy="Pass a new or empty folder as `statistics`, or none.",
        )
    try:
        yield CachedOutputs(folder, monitor, nodes)
    except (KeyboardInterrupt, OSError) as error:
        if any(map(_has_entries, folder.glob("*.sqlite"))):
            error.add_note(KEPT)
        raise


def _digest(text: str | bytes, letters: int) -> str:
    digest = hashlib.sha256(text.encode() if isinstance(text, str) else text)
    return digest.hexdigest()[:letters]


def _key(ids: Sequence[int]) -> str:
    return _digest(np.asarray(ids, dtype="<i4").tobytes(), 32)


def _on_node(model: LanguageModel, likeliest: int, device: str, texts: Texts) -> TokenStatistics:
    return token_statistics(model.to(choose_device(device)), texts, likeliest=likeliest)


def _groups(texts: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Keys of texts of similar length that are computed together."""
    groups: list[list[str]] = []
    free_tokens = 0
    for key in sorted(texts, key=lambda key: (len(texts[key]), key)):
        free_tokens -= len(texts[key])
        if free_tokens < 0 or not groups:
            groups.append([])
            free_tokens = GROUP_TOKENS - len(texts[key])
        groups[-1].append(key)
    return groups


def _write(store: Store, texts: Texts, computed: TokenStatistics) -> None:
    """Write the statistics of a group of texts, all or none."""
    with store.transaction():
        for ids, (first, end) in zip(texts, pairwise(computed.offsets), strict=True):
            store[_key(ids)] = {name: getattr(computed, name)[first:end] for name in _COLUMNS}


def _from_entries(entries: Sequence[Mapping[str, Any]]) -> TokenStatistics:
    """Statistics of texts from their entries in a store."""
    offsets = _offsets(np.array([len(entry["tokens"]) for entry in entries]))
    columns = {name: np.concatenate([entry[name] for entry in entries]) for name in _COLUMNS}
    return TokenStatistics(offsets=offsets, **columns)


def _has_entries(file: Path) -> bool:
    """Whether a file has answers or statistics."""
    try:
        with closing(sqlite3.connect(file)) as database:
            return database.execute("SELECT 1 FROM work LIMIT 1").fetchone() is not None
    except sqlite3.Error:  # answers of a server are in another table
        return True
