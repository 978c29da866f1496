"""A monitor that remembers what it showed, and the verb with options by name."""

from contextlib import nullcontext
from dataclasses import fields

from vestige.audits.membership.membership import membership
from vestige.audits.membership.query_options import QueryOptions
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.models.remote_options import RemoteOptions

OPTIONS = {"queries": QueryOptions, "shadows": ShadowOptions, "remote": RemoteOptions}


class Log:
    """A monitor that remembers its lines and the names of its tasks."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        self.tasks.append(task)
        return nullcontext(lambda *_: None)


def users(model, texts, **named):
    """`membership` of users; an option of a group is given by its name."""
    for group, kind in OPTIONS.items():
        if isinstance(named.get(group), kind):
            continue
        names = {one.name for one in fields(kind)} & named.keys()
        if own := {name: named.pop(name) for name in names}:
            named[group] = kind(**own)
    return membership(model, texts=texts, unit="user", **named)
