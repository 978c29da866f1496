"""What a run measured, and how: models, data, settings and command line, from its record."""

import shlex
from collections.abc import Mapping
from typing import Any

from vestige.reports.blocks import Listing
from vestige.reports.disclosure import SECRET_OPTIONS, printable
from vestige.reports.tables import Table
from vestige.reports.words import pairs, shown, words_of

_MANY = 3
"""So many models or data sets become a table."""


def settings_of(run: Mapping[str, Any], *, show_secrets: bool) -> tuple[Listing | Table, ...]:
    """Lists of settings, one for each model and data set, and tables where there are many."""
    lists: list[Listing] = []
    tables: list[Table] = []
    for key, title in (("models", "Model"), ("data", "Data"), ("configuration", "Settings")):
        given = dict(run.get(key) or {})
        nested = {name: given.pop(name) for name in list(given) if isinstance(given[name], Mapping)}
        if key != "configuration" and len(nested) >= _MANY:
            tables.append(_side_by_side(title, nested, show_secrets))
        else:
            lists += [
                Listing(title=_heading(title, name), facts=pairs(own, show_secrets=show_secrets))
                for name, own in nested.items()
            ]
        if key == "configuration":
            given.pop("seed", None)
        lists.append(Listing(title=title, facts=pairs(given, show_secrets=show_secrets)))
    versions = ", ".join(f"{k} {v}" for k, v in (run.get("versions") or {}).items())
    made = {"seed": run.get("seed"), "created": run.get("created"), "versions": versions}
    lists.append(Listing(title="Run", facts=pairs(made, show_secrets=show_secrets)))
    return (*(one for one in lists if one.facts), *tables)


def command_of(words: Any, *, show_secrets: bool) -> str:
    """The command line, ready to paste; secret values of options are left out."""
    texts, secret = [], False
    for word in map(str, words or ()):
        option, equals, _ = word.partition("=")
        hidden = equals and option in SECRET_OPTIONS
        if show_secrets or not (secret or hidden):
            texts.append(printable(shlex.quote(word)))
        else:
            texts.append(f"{option}=…" if hidden else "…")
        secret = word in SECRET_OPTIONS
    return " ".join(texts)


def _heading(title: str, name: str) -> str:
    return title if name == title.lower() else f"{title}: {words_of(name)}"


def _side_by_side(title: str, given: Mapping[str, Mapping[str, Any]], show_secrets: bool) -> Table:
    keys = list(dict.fromkeys(key for values in given.values() for key in values))
    return Table(
        title=title,
        columns=("", *map(words_of, keys)),
        texts=1 + len(keys),
        rows=tuple(
            (printable(name), *(shown(k, v.get(k), show_secrets=show_secrets) for k in keys))
            for name, v in given.items()
        ),
    )
