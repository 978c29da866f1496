"""Registries: objects by name, registered by modules of a package and by entry points."""

from collections.abc import Callable
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Generic, TypeVar

from vestige import _validate

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects of one kind by name, such as formats; each is registered where it is defined.

    Args:
        kind: name of the parameter that chooses an entry, for errors.
        package: a package; the first look-up imports its modules.
        group: an entry-point group; the first look-up loads its modules.

    Example:
        >>> scores = Registry[float]("score")
        >>> scores.add("half", 0.5)
        0.5
        >>> scores["half"], scores.names()
        (0.5, ('half',))
        >>> scores["whole"]
        Traceback (most recent call last):
        ValueError: score must be one of ('half',), got 'whole'
    """

    def __init__(self, kind: str, *, package: str | None = None, group: str | None = None) -> None:
        self._kind, self._package, self._group = kind, package, group
        self._entries: dict[str, T] = {}
        self._is_loaded = False

    def add(self, name: str, entry: T) -> T:
        """Register an entry under a name, and return it.

        Raises:
            ValueError: another entry has this name.
        """
        if self._entries.setdefault(name, entry) is not entry:
            raise ValueError(f"{self._kind} {name!r} is registered twice")
        return entry

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a function or class under a name."""
        return lambda entry: self.add(name, entry)

    def names(self) -> tuple[str, ...]:
        """Names in alphabetical order."""
        return tuple(sorted(self._loaded()))

    def values(self) -> tuple[T, ...]:
        """Entries in the order of their names."""
        return tuple(self._loaded()[name] for name in self.names())

    def __getitem__(self, name: str) -> T:
        """The entry of a name; ValueError if there is none."""
        _validate.one_of(self.names(), **{self._kind: name})
        return self._loaded()[name]

    def _loaded(self) -> dict[str, T]:
        if not self._is_loaded:
            self._is_loaded = True
            if self._package:
                for module in iter_modules(import_module(self._package).__path__):
                    import_module(f"{self._package}.{module.name}")
            for point in metadata.entry_points(group=self._group) if self._group else ():
                point.load()
        return self._entries
