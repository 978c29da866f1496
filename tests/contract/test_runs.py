"""Each verb runs once in a world of marked secrets; its run has the properties of all runs.

No terminal, log or page shows a secret without `--show-secrets`. Only the owner can read the files,
except models and pages. A run repeats from its own options and records what `report --since` needs.
"""

import json
import stat
from pathlib import Path

import pytest

from tests.contract.marked import RUNS, filled, marks
from vestige import results
from vestige.audits.release.since import CONFIGURATION, SUMMARY
from vestige.cli import app
from vestige.models.folders import is_model
from vestige.reports.quantities import QUANTITIES

pytestmark = pytest.mark.filterwarnings("ignore")  # about untrained models
REPORTED = [name for name, run in RUNS.items() if run.kind]
TIMES = {
    "seconds", "tokens_per_second", "seconds_per_epoch", "seconds_per_trial", "peak_memory_mib",
}  # fmt: skip


def test_every_verb_has_a_run():
    assert {run.line.split()[0] for run in RUNS.values()} == {*app.names()} - {"demo"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_completes_and_shows_no_secret(made, name):
    run = made(name)
    assert run.done.finished, (run.done.stderr, run.done.exception)
    assert not marks(run.done.output)
    for public in ("log.jsonl", "page.html", "card.md", "check.json", "junit.xml"):
        for file in run.out.rglob(public):
            assert not marks(file.read_text())
    if run.out.is_file():
        assert not marks(run.out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTED)
def test_the_page_of_a_run_shows_no_secret(made, shell, tmp_path, name):
    for number, folder in enumerate(made(name).folders):
        page = tmp_path / f"{number}.html"
        done = shell("report", folder, "--out", page)
        assert done.finished, done.stderr
        assert not marks(page.read_text() + done.output)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plant", "diff", "exposure", "extract secrets"])
def test_show_secrets_shows_marks(marked, shell, tmp_path, name):
    done = shell(*filled(RUNS[name].line, marked, tmp_path / "out"), "--show-secrets")
    assert done.finished, done.stderr
    assert marks(done.stdout)


def is_shared(path: Path) -> bool:
    """Whether a path is a model, part of a model, or a page outside a run folder."""
    if path.with_name("run.json").exists() and not is_model(path.parent):
        return False
    models = [folder for folder in (path, *path.parents) if folder.name == "model"]
    return path.suffix == ".html" or any(map(is_model, models))


def wrong_modes(root: Path, umask: int = 0, *, secret: bool = False) -> list[str]:
    """Paths with wrong file modes; `secret`: pages show secrets."""
    wrong = []
    for path in (root, *root.rglob("*")):
        private, shared = (0o700, 0o777) if path.is_dir() else (0o600, 0o666)
        expected = shared & ~umask if is_shared(path) and not secret else private
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != expected:
            wrong.append(f"{path.relative_to(root.parent)} {mode:o}, not {expected:o}")
    return wrong


@pytest.mark.parametrize("name", [name for name in RUNS if "--verify" not in RUNS[name].line])
def test_files_of_a_run_are_private_and_its_inputs_unchanged(made, name):
    run = made(name)
    assert wrong_modes(run.out) == []
    assert run.inputs_unchanged
    assert list(run.out.parent.rglob(".*")) == []


def test_a_page_with_secrets_is_private(marked, shell, tmp_path):
    shell("report", marked / "run", "--show-secrets", "--out", tmp_path / "new" / "page.html")
    assert wrong_modes(tmp_path / "new" / "page.html", secret=True) == []


@pytest.mark.slow
def test_modes_respect_the_umask_and_existing_directories(marked, shell, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    (mine / "train").mkdir(mode=0o750)
    for name in ("plant", "train", "diff", "report"):
        out = mine / (f"{name}.html" if name == "report" else name)
        done = shell(*filled(RUNS[name].line, marked, out))
        assert done.finished, done.stderr
        assert wrong_modes(out, 0o022) == (["train 750, not 700"] if name == "train" else [])
    assert stat.S_IMODE(mine.stat().st_mode) == 0o755


def timeless(summary):
    """A summary without times."""
    if isinstance(summary, list):
        return [timeless(item) for item in summary]
    if not isinstance(summary, dict):
        return summary
    return {name: timeless(value) for name, value in summary.items() if name not in TIMES}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run.repeats])
def test_a_run_repeats_from_its_own_options(made, shell, marked, tmp_path, monkeypatch, name):
    monkeypatch.chdir(marked)
    first, again = made(name), tmp_path / "again"
    done = shell(RUNS[name].line.split()[0], "--config", first.out, "--out", again, "--json")
    assert done.finished, (done.stderr, done.exception)
    assert not marks(done.output)
    assert isinstance(json.loads(done.stdout), dict)
    run, repeated = results.find(first.out), results.find(again)
    assert timeless(run.summary) == timeless(repeated.summary)
    arguments, same = dict(run.run["arguments"]), dict(repeated.run["arguments"])
    assert arguments.pop("out", None) != same.pop("out", None) or "out" not in arguments
    assert arguments == same


def test_every_kind_that_is_compared_has_settings():
    compared = {kind for quantity in QUANTITIES.values() for kind in quantity.of}
    by_text = {"IntentSlotTraining"}  # only its text and vocabulary are compared
    assert set(SUMMARY) | set(CONFIGURATION) == compared - by_text
    assert compared <= {run.kind for run in RUNS.values()}


@pytest.mark.parametrize("name", REPORTED)
def test_a_run_records_the_settings_by_which_runs_are_compared(made, name):
    kind, run = RUNS[name].kind, results.load(made(name).folders[0])
    assert run.result == kind
    assert set(SUMMARY.get(kind, ())) <= set(run.summary)
    assert set(CONFIGURATION.get(kind, ())) <= set(run.run["configuration"])
    if kind in QUANTITIES["perplexity"].of and name not in ("train private", "train seeds"):
        assert run.run["data"]["validation"]["sha256"]
        assert run.run["models"]["trained"]["vocabulary"]
    if kind == "TextMemorization":
        assert "sampled_difference" in run.summary
    if kind == "Completion":
        assert {"kind", "copies"} <= set(run.rows[0])


def refused_lines() -> list[str]:
    """The command lines of `refused.txt`."""
    lines, verb = [], ""
    for line in Path(__file__).with_name("refused.txt").read_text().splitlines():
        if line.startswith("["):
            verb = line.strip("[]")
        elif line and not line.startswith("#"):
            lines.append(f"{verb} {line}")
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("line", refused_lines())
def test_a_refusal_shows_no_secret(marked, shell, tmp_path, monkeypatch, line):
    monkeypatch.chdir(marked)
    done = shell(*filled(line, marked, tmp_path / "out"))
    assert done.exit_code == 2, (done.stdout, done.stderr, done.exception)
    assert not marks(done.output)
