"""A box for a data-protection officer: what was asked, of what, what was found, what is left open.

Opinion 28/2024 of the European Data Protection Board counts documented tests against membership
inference, extraction and reconstruction among what shows whether a model gives personal data away.
A file note on one names the model and the texts so that another can be told from them: the whole
of each hash stands here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vestige.reports.components.disclosure import printable
from vestige.reports.components.facts import Facts
from vestige.reports.components.numbers import NOTHING, whole

WHY = (
    "For the record of processing: Opinion 28/2024 of the European Data Protection Board names "
    "documented tests such as this one among the evidence on whether personal data can be had from "
    "a model. It is one such test, and not a finding that the model is anonymous or its use lawful."
)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The box.

    Attributes:
        title: its heading.
        key: why such a thing is kept.
        facts: questions and answers.
        unsaid: what the finding does not say.
    """

    template: ClassVar[str] = "evidence"
    title: str = "For a data-protection officer"
    key: str = WHY
    facts: Facts
    unsaid: tuple[str, ...]


def evidence(
    run: Mapping[str, Any],
    *,
    asked: str,
    models: Mapping[str, str],
    data: Mapping[str, str],
    found: str,
    unsaid: Sequence[str],
) -> Evidence:
    """The box of a run.

    Args:
        run: its record.
        asked: the question.
        models: what each role among the record's models is called.
        data: likewise of the lists of texts.
        found: the answer.
        unsaid: what it does not say, a sentence or more each.
    """
    versions = run.get("versions") or {}
    made = (f"on {str(run['created'])[:10]}" if run.get("created") else "") + (
        f" by Vestige {versions['vestige']}" if versions.get("vestige") else ""
    )
    facts = (
        ("What was asked", asked),
        *((f"Of {called}", _model(run, role)) for role, called in models.items()),
        *((f"With {called}", _texts(run, role)) for role, called in data.items()),
        ("When and by what", made.strip()),
        ("What was found", found),
    )
    told = tuple((name, printable(text)) for name, text in facts if text)
    return Evidence(facts=told, unsaid=tuple(unsaid))


def _model(run: Mapping[str, Any], role: str) -> str:
    """The name of a model and the hash of its weights; "" where the run had none."""
    own = (run.get("models") or {}).get(role)
    if not isinstance(own, Mapping):
        return ""
    base = own.get("base")
    told = [
        _name(own),
        f"{whole(own['parameters'])} weights" if own.get("parameters") else "",
        f"SHA-256 {own.get('sha256') or NOTHING}",
        f"on a base of SHA-256 {base.get('sha256')}" if isinstance(base, Mapping) else "",
    ]
    return ", ".join(filter(None, told))


def _texts(run: Mapping[str, Any], role: str) -> str:
    """The number of some texts and their hash; "" where the run had none."""
    own = (run.get("data") or {}).get(role)
    if not isinstance(own, Mapping):
        return ""
    return f"{whole(own['documents'])} texts, SHA-256 {own.get('sha256') or NOTHING}"


def _name(own: Mapping[str, Any]) -> str:
    """The last part of a path: where it lay says nothing to others."""
    path = own.get("path")
    return str(path).rstrip("/").rpartition("/")[2] if path else "a model in memory"
