"""What each verb writes is its owner's alone, whatever the umask, but for models and pages."""

import os
import stat
from pathlib import Path

import pytest

from vestige.cli import app
from vestige.models.folders import is_model

KINDS = (
    *("plant", "plant nlu", "train", "train private", "train nlu", "train pairs", "train seeds"),
    *("diff", "diff clean", "diff phrase", "exposure", "exposure secrets", "exposure since"),
    *("extract", "extract secrets", "extract texts", "extract utterances", "membership users"),
    *(
        "membership",
        "unlearning",
        "compare",
        "check",
        "report limits",
        "report",
        "report secrets",
    ),
)
USUAL = ("plant", "train", "diff", "report", "report secrets")


@pytest.fixture
def run(every_verb, inputs, shell, monkeypatch):
    """Runs the quick command of a kind."""
    monkeypatch.chdir(inputs)

    def call(kind, out):
        words = every_verb.COMMANDS[kind]
        return shell(*(out if word == every_verb.OUT else word for word in words))

    return call


def test_no_verb_is_forgotten(every_verb):
    assert tuple(every_verb.COMMANDS) == tuple(sorted(KINDS, key=[*every_verb.COMMANDS].index))
    verbs = {*app.names()} - {"demo"}
    assert {words[0] for words in every_verb.COMMANDS.values()} == verbs


def for_others(path: Path) -> bool:
    """Whether it is a page, but for one in a run folder, or a model or part of one."""
    if path.with_name("run.json").exists() and not is_model(path.parent):
        return False
    models = [one for one in (path, *path.parents) if one.name == "model"]
    return path.suffix == ".html" or any(map(is_model, models))


def wrong(root: Path, umask: int, *, secret: bool) -> list[str]:
    """What has another mode than it should; `secret` where a page shows secrets."""
    found = []
    for path in (root, *root.rglob("*")):
        private, shared = (0o700, 0o777) if path.is_dir() else (0o600, 0o666)
        wanted = shared & ~umask if for_others(path) and not secret else private
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != wanted:
            found.append(f"{path.relative_to(root.parent)} {mode:o}, not {wanted:o}")
    return found


@pytest.mark.parametrize(
    ("kind", "umask"),
    [*((kind, 0o000) for kind in KINDS), *((kind, 0o022) for kind in USUAL)],
    ids=lambda value: value if isinstance(value, str) else f"{value:03o}",
)
def test_what_a_verb_writes_is_private(run, inputs, tmp_path, kind, umask):
    out = tmp_path / "new" / ("page.html" if kind in ("report", "report secrets") else "out")
    before, mask = set(inputs.rglob("*")), os.umask(umask)
    try:
        done = run(kind, out)
    finally:
        os.umask(mask)
    assert done.finished, (done.stderr, done.exception)
    assert wrong(out, umask, secret=kind == "report secrets") == []
    assert list(tmp_path.rglob(".*")) == []
    assert set(inputs.rglob("*")) == before


def test_directories_that_are_there_are_left_as_they_are(run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o755)
    for kind in ("plant", "train", "membership users"):
        out = tmp_path / "mine" / kind
        if kind == "train":
            out.mkdir()
            out.chmod(0o750)
        assert run(kind, out).finished
        assert stat.S_IMODE(out.stat().st_mode) == (0o750 if kind == "train" else 0o700)
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755
