"""Local models that read the same texts, over one set of token ids."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.models.checkpoints import load_model
from vestige.models.folders import ADAPTER_CONFIG, model_folder, of_model, of_object
from vestige.models.protocols import LanguageModel, placed
from vestige.models.snapshots import common_dtype, load_snapshots
from vestige.models.token_statistics import CachedOutputs, Texts, TokenStatistics
from vestige.monitor import Monitor
from vestige.parallel import connected

if TYPE_CHECKING:
    from vestige.arguments import ModelLike
else:
    ModelLike: TypeAlias = Any


@dataclass(frozen=True)
class Readings:
    """What models output for lists of texts.

    Attributes:
        statistics: by list, then by model; the model in question is the first.
        read: tokens of the first list that were scored, and all that it has.
        known: by list, (t,) which tokens `statistics` has; None: all.
        shown: most probable tokens that the first model shows; None: it shows everything.
    """

    statistics: Mapping[str, Mapping[str, TokenStatistics]]
    read: tuple[int, int]
    known: Mapping[str, NDArray[np.bool_]] | None = None
    shown: int | None = None

    def by_model(self, *lists: str) -> dict[str, list[TokenStatistics]]:
        """By model, the statistics of some lists, or of all."""
        chosen = [self.statistics[name] for name in lists or self.statistics]
        return {model: [own[model] for own in chosen] for model in chosen[0]}


@dataclass(frozen=True)
class TextModels:
    """Local models by role, such as "target" and "base", over one set of token ids.

    Attributes:
        models: the model in question first.
        recorded: provenance of each.
    """

    models: dict[str, LanguageModel]
    recorded: dict[str, object]

    @classmethod
    def with_base(
        cls, model: ModelLike, base: ModelLike | None, *, device: str, monitor: Monitor
    ) -> "TextModels":
        """A target, and its base if there is one; that of an adapter need not be given."""
        base = base or base_of_adapter(model)
        if base is None:
            return cls.alone(model, device=device)
        two = cls.several({"before": base, "after": model}, device=device, monitor=monitor)
        names = {"target": "after", "base": "before"}
        models = {role: two.models[name] for role, name in names.items()}
        return cls(models, {role: two.recorded[name] for role, name in names.items()})

    @classmethod
    def alone(cls, model: ModelLike, *, device: str) -> "TextModels":
        """A target without a base, in the precision of its weights if that loses nothing."""
        if not isinstance(model, str | PathLike):
            return cls({"target": model.eval()}, {"target": of_object(model)})
        dtype = common_dtype([model], placed(device))
        target = load_model(fspath(model), device=device, dtype=dtype)
        return cls({"target": target}, {"target": of_model(model, target)})

    @classmethod
    def several(
        cls, given: Mapping[str, ModelLike], *, device: str, monitor: Monitor
    ) -> "TextModels":
        """Models named "before", "after" and others.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id means different texts.
        """
        read = load_snapshots(given, device=device, monitor=monitor)
        return cls({role: one.eval() for role, one in read.models.items()}, dict(read.recorded))

    @property
    def target(self) -> LanguageModel:
        """The model in question."""
        return next(iter(self.models.values()))

    @property
    def longest(self) -> int | None:
        """Tokens of a text that all models read at once; None: any number."""
        known = [getattr(model, "longest", None) for model in self.models.values()]
        return min((most - 1 for most in known if most is not None), default=None)

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """The first tokens of each text, as many as all models read at once."""
        return [ids[: self.longest] for ids in self.target.vocabulary.encode_batch(list(texts))]

    def encoded_lists(self, lists: Mapping[str, Corpus]) -> dict[str, list[list[int]]]:
        """The first tokens of each text, by list; DataError if a text has none."""
        rows = {name: self.encoded(list(corpus)) for name, corpus in lists.items()}
        for name, texts in rows.items():
            if empty := [number for number, ids in enumerate(texts, start=1) if not ids]:
                raise DataError(
                    f"text {empty[0]} of `{name}` has no token of the model's vocabulary",
                    remedy="Remove it.",
                )
        return rows

    def tokens_read(self, texts: Sequence[str]) -> tuple[int, int]:
        """Known tokens that are read of some texts, and all tokens that they have."""
        vocabulary = self.target.vocabulary
        rows = vocabulary.encode_batch(list(texts))
        read = [token for ids in rows for token in ids[: self.longest]]
        known = sum(token != vocabulary.unk_id for token in read)
        return known, sum(map(len, rows))

    def statistics(
        self, texts: Texts, outputs: CachedOutputs, *, of: str, likeliest: int = 0
    ) -> dict[str, TokenStatistics]:
        """Statistics of texts by role; `of` says what they are, for the progress."""
        return {
            role: outputs.statistics(
                model,
                self.recorded[role],
                texts,
                task=f"reading {of} with the {role}",
                likeliest=likeliest,
            )
            for role, model in self.models.items()
        }

    def readings(self, lists: Mapping[str, Corpus], outputs: CachedOutputs) -> Readings:
        """Statistics of all lists under all models; DataError if a text has no token."""
        nodes = outputs.nodes
        with nullcontext() if nodes is None else connected(nodes.address):
            found = {
                name: self.statistics(rows, outputs, of=f"`{name}`")
                for name, rows in self.encoded_lists(lists).items()
            }
        return Readings(found, self.tokens_read(list(next(iter(lists.values())))))


def base_of_adapter(model: ModelLike) -> str | None:
    """The base that an adapter's folder names."""
    from vestige.models.lora import base_of

    if not isinstance(model, str | PathLike):
        return None
    folder = model_folder(fspath(model))
    return str(base_of(folder)) if (folder / ADAPTER_CONFIG).is_file() else None
