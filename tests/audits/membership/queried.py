"""The verb for users, with the options of a group by their names."""

from dataclasses import fields

from vestige.audits.membership.membership import QueryOptions, ShadowOptions, membership
from vestige.models.remote.options import RemoteOptions

OPTIONS = {"queries": QueryOptions, "shadows": ShadowOptions, "remote": RemoteOptions}


def users(model, texts, **named):
    """`membership` of users; an option of a group is given by its name."""
    for group, kind in OPTIONS.items():
        if isinstance(named.get(group), kind):
            continue
        names = {one.name for one in fields(kind)} & named.keys()
        if own := {name: named.pop(name) for name in names}:
            named[group] = kind(**own)
    return membership(model, texts=texts, unit="user", **named)
