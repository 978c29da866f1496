"""The directory of `vestige audit-users`: what it is the audit of, and what is kept in it.

DIR/audit.json     what decides the audit
DIR/shadows/       shadow models, unless --shadow-dir says where
DIR/ranks/         ranks of the words under a model, by what they depend on
DIR/answers.jsonl  what a service answered
DIR/run/           the result, a run directory
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.errors import RunError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.cli.audit_asking import AuditInputs
    from vestige.data.token_queries import TokenQueries

IDENTITY, RANKS, SHADOWS, RUN = "audit.json", "ranks", "shadows", "run"


def check_out(out: Path) -> None:
    """Refuse a directory that is not an audit's, before anything is read.

    Raises:
        RunError: it is a file, or holds something else.
    """
    from vestige.data.file_lock import vacant

    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file", remedy="Give a directory to make.")
    if not (out / IDENTITY).is_file() and not vacant(out):
        raise RunError(
            f"{out} holds something, but no audit to go on with",
            remedy="Choose another --out, or remove it first.",
        )


@contextmanager
def claimed(out: Path, identity: Mapping[str, object]) -> Iterator[None]:
    """The directory while an audit works in it, alone.

    One that could not begin leaves nothing behind where nothing was.

    Raises:
        RunError: the directory holds another audit, or another process writes there.
    """
    from vestige.data.atomic_write import write_text
    from vestige.data.file_lock import claimed
    from vestige.results import to_json

    text = to_json(identity) + "\n"
    with claimed(out, worth=_worth_keeping):
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


@dataclass(frozen=True)
class RankCache:
    """Ranks under models, in a folder: asked of a model once, however often the audit begins.

    Attributes:
        folder: one file each, named by what decides them.
    """

    folder: Path

    def of(
        self, sha256: str, asking: "AuditInputs", asked: "TokenQueries", make: Callable[[], Any]
    ) -> "tuple[NDArray[np.int32], NDArray[np.float32]]":
        """(w,) ranks and log-probabilities; what is not there is made."""
        import numpy as np

        from vestige.cli.terminal import say
        from vestige.data.atomic_write import replacing

        path = self.folder / f"{_key(sha256, asking, asked)}.npz"
        if path.is_file():
            if (kept := _kept(path, len(asked))) is not None:
                return kept
            say(f"{path} is damaged: these ranks are computed again")
        made = make()
        with replacing(path) as file:
            np.savez(file, ranks=made.ranks, log_probs=made.log_probs)
        return made.ranks, made.log_probs


def _kept(path: Path, words: int) -> "tuple[NDArray[np.int32], NDArray[np.float32]] | None":
    """What a file keeps of so many words; None where it is damaged."""
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            ranks, log_probs = found["ranks"], found["log_probs"]
    except Exception:  # BadZipFile, zlib.error, struct.error, ...: by which byte it is
        return None
    sound = ranks.shape == log_probs.shape == (words,)
    whole = sound and ranks.dtype.kind == "i" and log_probs.dtype.kind == "f"
    # A rank is a count from 1; what a rank alone tells has no log-probability.
    if not whole or (ranks < 1).any() or (log_probs > 0).any():
        return None
    return ranks, log_probs


def _key(sha256: str, asking: "AuditInputs", asked: "TokenQueries") -> str:
    from vestige.data.encoded_pairs import EncodedPairs

    digest = hashlib.sha256(sha256.encode())
    parts: list[NDArray[Any]] = [asking.targets.tokens, asking.targets.offsets]
    parts += [asked.texts, asked.positions]
    if isinstance(asking.texts, EncodedPairs):
        parts += [asking.texts.sources.tokens, asking.texts.sources.offsets]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part.tobytes())
    return digest.hexdigest()[:16]


def _require_same(path: Path, wanted: dict[str, Any]) -> None:
    from vestige.data.json_file import read_object

    found = read_object(path, error=RunError, remedy="Choose another --out, or remove it first.")
    if found == wanted:
        return
    other = [name for name in wanted if found.get(name) != wanted[name]]
    raise RunError(
        f"{path.parent} holds another audit: {', '.join(other) or 'something'} differs",
        remedy="Choose another --out; --shadow-dir of the old one saves training again what is "
        "the same.",
    )


def _worth_keeping(out: Path) -> bool:
    """Whether something is there that cost time or queries."""
    answers = out / "answers.jsonl"
    told = answers.read_bytes() if answers.is_file() else b""
    if b'"answer": ' in told or b'"account": ' in told:
        return True
    return any((out / SHADOWS).glob("*/*")) or (out / RUN).exists()
