"""The model that is asked about texts, and its base: read alike, over one set of token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.models.provenance import of_model, of_object
from vestige.models.snapshots import load_snapshots
from vestige.monitor import Monitor
from vestige.workflows.options import ModelLike
from vestige.workflows.text_lists import require_tokens

if TYPE_CHECKING:
    from vestige.attacks.texts.statistics_cache import Nodes
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class TextModels:
    """The target, and its base where there is one.

    Attributes:
        models: by role, such as "target" and "base", the one that is asked about first.
        recorded: what a run records of each.
    """

    models: "dict[str, LanguageModel]"
    recorded: dict[str, object]

    @classmethod
    def read(
        cls, model: ModelLike, base: ModelLike | None, *, device: str, monitor: Monitor
    ) -> "TextModels":
        """Read both; of an adapter the base is the same weights without it, and need not be given.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id stands for different texts.
        """
        base = base or base_of_adapter(model)
        if base is None:
            return cls.alone(model, device=device)
        given = {"before": base, "after": model}
        two = cls.several(given, device=device, monitor=monitor)
        roles = {"target": "after", "base": "before"}
        return cls(
            {role: two.models[name] for role, name in roles.items()},
            {role: two.recorded[name] for role, name in roles.items()},
        )

    @classmethod
    def alone(cls, model: ModelLike, *, device: str) -> "TextModels":
        """Read a model without a base, in the precision of its weights where that is no loss.

        Raises:
            ModelError: it cannot be read.
        """
        from vestige.models.checkpoints import load_model
        from vestige.models.precision import common_dtype
        from vestige.models.protocols import placed

        if not isinstance(model, str | PathLike):
            return cls({"target": model.eval()}, {"target": of_object(model)})
        dtype = common_dtype([model], placed(device))
        target = load_model(fspath(model), device=device, dtype=dtype)
        return cls({"target": target}, {"target": of_model(model, target)})

    @classmethod
    def several(
        cls, given: Mapping[str, ModelLike], *, device: str, monitor: Monitor
    ) -> "TextModels":
        """Read models "before", "after" and others, over one set of token ids.

        Raises:
            ModelError: one cannot be read.
            IncompatibleModels: a token id stands for different texts.
        """
        read = load_snapshots(given, device=device, monitor=monitor)
        return cls({role: one.eval() for role, one in read.models.items()}, dict(read.recorded))

    @property
    def target(self) -> "LanguageModel":
        """The model that is asked about, or one of those that are compared."""
        return next(iter(self.models.values()))

    @property
    def longest(self) -> int | None:
        """Tokens of a text that all of them read at once, its beginning not counted."""
        known = [getattr(model, "longest", None) for model in self.models.values()]
        return min((most - 1 for most in known if most is not None), default=None)

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """The first tokens of each text, as many as are read at once."""
        return [ids[: self.longest] for ids in self.target.vocabulary.encode_batch(list(texts))]

    def read_of(self, texts: Sequence[str]) -> tuple[int, int]:
        """How many tokens of some texts are scored as what they are, and how many there are."""
        vocabulary = self.target.vocabulary
        rows = vocabulary.encode_batch(list(texts))
        kept = [token for ids in rows for token in ids[: self.longest]]
        known = sum(token != vocabulary.unk_id for token in kept)
        return known, sum(len(ids) for ids in rows)

    def encoded_lists(self, lists: "Mapping[str, Corpus]") -> dict[str, list[list[int]]]:
        """The first tokens of each text, by the name of its list.

        Raises:
            DataError: a text has none.
        """
        rows = {name: self.encoded(list(corpus)) for name, corpus in lists.items()}
        for name, ids in rows.items():
            require_tokens(name, ids)
        return rows

    def statistics(
        self,
        texts: Ids,
        folder: Path | None,
        *,
        of: str,
        monitor: Monitor,
        likeliest: int = 20,
        nodes: "Nodes | None" = None,
    ) -> "dict[str, TokenStatistics]":
        """What each of the models says of the texts, by role.

        Args:
            texts: ids of each.
            folder: where they are kept.
            of: what the texts are, for the monitor.
            likeliest: how many of the likeliest tokens are asked of each place.
            nodes: that are asked in place of this machine.
        """
        from vestige.attacks.texts.statistics_cache import StatisticsCache

        found = {}
        for role, model in self.models.items():
            cache = StatisticsCache.of_model(
                folder,
                _identity(self.recorded[role], model),
                monitor=monitor,
                likeliest=likeliest,
                nodes=nodes,
            )
            found[role] = cache.of(model, texts, task=f"asking the {role} about {of}")
        return found


def base_of_adapter(model: ModelLike) -> str | None:
    """The base that an adapter's folder names."""
    from vestige.models.folders import model_folder
    from vestige.models.weight_files import ADAPTER_CONFIG

    if not isinstance(model, str | PathLike):
        return None
    folder = model_folder(fspath(model))
    if not (folder / ADAPTER_CONFIG).is_file():
        return None
    from vestige.models.lora import base_of

    return str(base_of(folder))


def _identity(recorded: object, model: "LanguageModel") -> dict[str, object]:
    """What decides a model's answers, wherever it was read from."""
    own = dict(recorded) if isinstance(recorded, dict) else {}
    return {
        "sha256": own.get("sha256"),
        "base": (own.get("base") or {}).get("sha256"),
        "vocabulary": model.vocabulary.fingerprint(),
        "outputs": model.vocab_size,
        "precision": str(getattr(next(iter(model.parameters()), None), "dtype", None)),
    }
