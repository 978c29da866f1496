"""Registries: things of one kind by name, from modules of a package and from entry points."""

from collections.abc import Callable
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Generic, TypeVar

from vestige import _validate

T = TypeVar("T")


class Registry(Generic[T]):
    """Registered things of one kind, such as formats; each is registered beside its definition.

    Args:
        kind: the name of the parameter that chooses one, for errors.
        package: a package all of whose modules are imported before the first look-up.
        group: an entry-point group; each entry point is a module that registers.

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
        self._found: dict[str, T] = {}
        self._complete = False

    def add(self, name: str, thing: T) -> T:
        """Register a thing under a name; returns the thing.

        Raises:
            ValueError: another one has this name.
        """
        if self._found.setdefault(name, thing) is not thing:
            raise ValueError(f"{self._kind} {name!r} is registered twice")
        return thing

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a function or class."""
        return lambda thing: self.add(name, thing)

    def names(self) -> tuple[str, ...]:
        """Names in alphabetical order."""
        return tuple(sorted(self._all()))

    def values(self) -> tuple[T, ...]:
        """Registered things in the order of their names."""
        return tuple(self._all()[name] for name in self.names())

    def __getitem__(self, name: str) -> T:
        """The thing of this name; ValueError if there is none."""
        _validate.one_of(self.names(), **{self._kind: name})
        return self._all()[name]

    def _all(self) -> dict[str, T]:
        if not self._complete:
            self._complete = True
            if self._package:
                for module in iter_modules(import_module(self._package).__path__):
                    import_module(f"{self._package}.{module.name}")
            for point in metadata.entry_points(group=self._group) if self._group else ():
                point.load()
        return self._found
