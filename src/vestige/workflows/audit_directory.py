"""Directory of an audit of users: what it is the audit of, and what is kept in it.

DIR/audit.json      what decides the audit
DIR/shadows/        shadow models, unless --shadow-dir says where
DIR/ranks/          ranks of the words under a model, by what they depend on
DIR/answers.sqlite  what a service answered
DIR/statistics/     what target and base say of the texts, with --base
DIR/run/            the result, a run directory
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vestige.attacks.membership.user_audit import UserAudit
from vestige.data.atomic_write import write_text
from vestige.data.file_lock import claimed as alone
from vestige.data.file_lock import vacant
from vestige.data.json_file import read_object
from vestige.errors import RunError
from vestige.results import load, to_json
from vestige.store import Store

IDENTITY, RANKS, SHADOWS, RUN = "audit.json", "ranks", "shadows", "run"
ANSWERS, STATISTICS = "answers.sqlite", "statistics"


def check_out(out: Path) -> None:
    """Refuse a directory that is not an audit's, before anything is read.

    Raises:
        RunError: it is a file, or holds something else.
    """
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file", remedy="Give a directory to make.")
    if not (out / IDENTITY).is_file() and not vacant(out):
        raise RunError(
            f"{out} holds something, but no audit to go on with",
            remedy="Choose another `out`, or remove it first.",
        )


@contextmanager
def claimed(out: Path, identity: Mapping[str, object]) -> Iterator[None]:
    """The directory while an audit works in it, alone; removed again if nothing was kept in it.

    Raises:
        RunError: the directory holds another audit, or another process writes there.
    """
    text = to_json(identity) + "\n"
    with alone(out, worth=_worth_keeping):
        check_out(out)
        if (out / IDENTITY).is_file():
            _require_same(out / IDENTITY, json.loads(text))
        else:
            write_text(out / IDENTITY, text)
        try:
            yield
        except (OSError, KeyboardInterrupt) as error:
            if _worth_keeping(out):
                error.add_note("The same command goes on: nothing is trained or asked twice")
            raise


def finished_audit(out: Path) -> UserAudit:
    """The result that a finished audit's directory keeps.

    Raises:
        RunError: its rows are damaged.
    """
    run = load(out / RUN)
    own = ("format", "result", "created", "versions")
    try:
        return UserAudit.of_rows(
            run.summary, run.rows, record={k: v for k, v in run.run.items() if k not in own}
        )
    except (LookupError, ArithmeticError, TypeError, ValueError) as error:
        raise damaged(out) from error


def damaged(out: Path) -> RunError:
    """The error of a finished audit whose rows cannot be used."""
    return RunError(
        f"{out / RUN} holds rows that no audit has",
        remedy="It was changed or is damaged; remove it, and the same command makes it again.",
    )


def _require_same(path: Path, wanted: dict[str, Any]) -> None:
    found = read_object(path, error=RunError, remedy="Choose another `out`, or remove it first.")
    if found == wanted:
        return
    other = [name for name in wanted if found.get(name) != wanted[name]]
    raise RunError(
        f"{path.parent} holds another audit: {', '.join(other) or 'something'} differs",
        remedy="Choose another `out`; `shadow_dir` of the old one saves training again what is "
        "the same.",
    )


def _worth_keeping(out: Path) -> bool:
    """Whether something is there that cost time or queries."""
    if (out / RUN).exists() or any((out / SHADOWS).glob("*/*")):
        return True
    stores = [out / ANSWERS, *(out / STATISTICS).glob("*.sqlite")]
    return any(_holds_work(store) for store in stores if store.is_file())


def _holds_work(path: Path) -> bool:
    """Whether a store holds more than an account of calls."""
    try:
        with Store(path, essential="", shared=True) as store:
            return any(key != "sent" and not key.startswith(("spent", "about/")) for key in store)
    except RunError:  # it is damaged, and left as it is
        return True
