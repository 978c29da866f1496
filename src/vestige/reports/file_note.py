"""A box for a data-protection officer: question, model, texts, finding, and what it does not say.

Opinion 28/2024 of the European Data Protection Board counts documented tests against membership
inference, extraction and reconstruction as evidence on whether a model reveals personal data. A
file note identifies model and texts, so it has their full hashes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.reports.blocks import FileNote
from vestige.reports.disclosure import printable
from vestige.reports.numbers import NOTHING, whole

WHY = (
    "For the record of processing. Opinion 28/2024 of the European Data Protection Board names "
    "documented tests such as this one as evidence on whether personal data can be extracted from "
    "a model. This is one such test. It does not show that the model is anonymous or that its use "
    "is lawful."
)


def file_note(
    run: Mapping[str, Any],
    *,
    asked: str,
    models: Mapping[str, str],
    data: Mapping[str, str],
    found: str,
    unsaid: Sequence[str],
) -> FileNote:
    """The box of a run.

    Args:
        run: its record.
        asked: the question.
        models: a description of each role among the record's models.
        data: likewise of its lists of texts.
        found: the answer.
        unsaid: what it does not say.
    """
    versions = run.get("versions") or {}
    made = (f"on {str(run['created'])[:10]}" if run.get("created") else "") + (
        f" by Vestige {versions['vestige']}" if versions.get("vestige") else ""
    )
    facts = (
        ("Question", asked),
        *((f"About {name}", _model(run, role)) for role, name in models.items()),
        *((f"With {name}", _texts(run, role)) for role, name in data.items()),
        ("Made", made.strip()),
        ("Finding", found),
    )
    shown = tuple((name, printable(text)) for name, text in facts if text)
    return FileNote(key=WHY, facts=shown, unsaid=tuple(unsaid))


def _model(run: Mapping[str, Any], role: str) -> str:
    """The name of a model and the hash of its weights; "" where the run had none."""
    own = (run.get("models") or {}).get(role)
    if not isinstance(own, Mapping):
        return ""
    base = own.get("base")
    parts = [
        _name(own),
        f"{whole(own['parameters'])} weights" if own.get("parameters") else "",
        f"SHA-256 {own.get('sha256') or NOTHING}",
        f"on a base of SHA-256 {base.get('sha256')}" if isinstance(base, Mapping) else "",
    ]
    return ", ".join(filter(None, parts))


def _texts(run: Mapping[str, Any], role: str) -> str:
    """The number of some texts and their hash; "" where the run had none."""
    own = (run.get("data") or {}).get(role)
    if not isinstance(own, Mapping):
        return ""
    return f"{whole(own['documents'])} texts, SHA-256 {own.get('sha256') or NOTHING}"


def _name(own: Mapping[str, Any]) -> str:
    """The last part of a path; the rest is private to the machine."""
    path = own.get("path")
    return str(path).rstrip("/").rpartition("/")[2] if path else "a model in memory"
