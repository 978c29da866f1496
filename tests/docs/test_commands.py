"""All commands and programs in the documents run.

Guides, tutorial and README run in the folder of `examples/practice.py --quick`, and the examples of
verbs in a folder of small files and models. `test_screens.py` compares the verdicts.
"""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.documents import REPOSITORY, documents
from tests.docs.screens import make_practice
from tests.docs.steps import STEPS, Step
from tests.docs.workplace import Workplace, lay_out, put, run

GUIDES = [name for name in STEPS if not name.startswith(("docs/verbs/", "docs/reproduction/"))]

MINUTES = {
    "README.md: ", "docs/tutorial.md",
    *(f"docs/guides/{name}.md" for name in (
        "my-text", "nlu", "privacy", "release", "texts", "update", "users",
    )),
    *(f"docs/verbs/{name}.md" for name in ("check", "compare", "diff", "train")),
}  # fmt: skip
"""Documents that train or search for minutes: `make long` runs them."""

_INPUTS = """
verbs/check: my-adapter = foreign adapter, base = gpt, tuned = adapter
verbs/compare: public = model, planted = planted, goldfish = other seeds, dp = private seeds
verbs/compare: runs/1 = single 1, runs/2 = single 2, runs/3 = single 3
verbs/diff: before = gpt, after = adapter, base = gpt, adapter = small adapter
verbs/exposure: trained = update, planted = planted, tuned = gpt, base = gpt
verbs/extract: trained = update, planted = planted, tuned = gpt, nlu = assistant
verbs/extract: planted-nlu = spoken
verbs/membership: base = gpt, fine-tuned = gpt, my-lora-adapter = adapter
verbs/plant: base = model
verbs/report: run = diffed, diff-run = diffed, exposure-run = measured, last-release = diffed
verbs/train: public = model, other = model, gpt2-folder = gpt, bert-folder = bert
verbs/train: planted = planted, planted --task nlu = spoken
verbs/unlearning: before = model, after = update, anew = null
reproduction/private-utility: DIR/twice/comparison = diffed
"""
INPUTS: dict[str, dict[str, str]] = {}
for _line in _INPUTS.strip().splitlines():
    _page, _, _names = _line.partition(": ")
    INPUTS.setdefault(f"docs/{_page}.md", {}).update(
        tuple(entry.split(" = ")) for entry in _names.split(", ")
    )
"""The models and folders that a page expects, by name; a name with options is for commands that
contain it."""

NOT_RUN = {"demo": "trains for minutes on a text of another package; tests/test_demo.py runs it"}
"""Verbs whose commands are not run here, and why."""


def test_the_documents_named_here_exist():
    assert set(INPUTS) | MINUTES | {"docs/guides/secrets.md"} <= set(STEPS)


@pytest.mark.parametrize("document", STEPS)
def test_options_in_documents_are_listed_on_the_page_of_the_verb(document):
    for step in (step for block in STEPS[document] for step in block if step.kind == "command"):
        verb = step.words[0]
        page = (REPOSITORY / "docs" / "verbs" / f"{verb}.md").read_text(encoding="utf-8")
        known = set(re.findall(r"`(--[\w-]+)", "\n".join(re.findall(r"^\| (.*?) \|", page, re.M))))
        options = {word.partition("=")[0] for word in step.words if word.startswith("--")}
        assert options <= known, f"{document}: vestige {verb} has no {options - known}"


@pytest.fixture(scope="module")
def practice(tmp_path_factory) -> Path:
    return make_practice(tmp_path_factory.mktemp("documents") / "practice", "--quick")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("verbs"))


def _marked(names: list[str]) -> list[object]:
    long = pytest.mark.long
    return [pytest.param(name, marks=long) if name in MINUTES else name for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("document", _marked(GUIDES))
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # training without a GPU
def test_the_steps_of_a_guide_run(document, practice, tmp_path, monkeypatch):
    folder = shutil.copytree(practice, tmp_path / "practice")
    monkeypatch.chdir(folder)
    for block in STEPS[document]:
        _run_block(block, before_each=lambda words: None)


@pytest.mark.slow
@pytest.mark.parametrize("document", _marked([name for name in STEPS if name not in GUIDES]))
def test_the_examples_of_a_verb_run(document, workplace, tmp_path, monkeypatch):
    monkeypatch.chdir(workplace.root)
    made = {name: workplace.make(kind) for name, kind in INPUTS.get(document, {}).items()}
    lay_out(workplace, tmp_path, made)
    monkeypatch.chdir(tmp_path)

    def put_named(words: list[str]) -> None:
        put(tmp_path, {n: made[n] for n in made if " " in n and n in " ".join(words)})

    for block in STEPS[document]:
        _run_block(block, before_each=put_named)


def _run_block(block: list[Step], before_each: Callable[[list[str]], None]) -> None:
    """Run the steps of a block; its outputs replace those of other blocks."""
    for out in (step.out for step in block if step.out):
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    for step in block:
        if step.kind == "python":
            exec(compile(step.text, "a document", "exec"), {})
        elif step.kind == "file":
            Path(step.name).write_text(step.text, encoding="utf-8")
        elif step.kind == "shell":
            subprocess.run(step.words, check=True)
        elif step.words[0] not in NOT_RUN:
            before_each(step.words)
            run(*_shortened(step.words))
            assert step.out is None or step.out.exists()


def _shortened(words: list[str]) -> list[str]:
    """The command with 0.1 s instead of each minute, and passages no longer than the texts."""
    if words[0] == "extract" and "--reference" in words and "--prefix" not in words:
        return [*words, "--prefix", "9", "--suffix", "9"]
    if "--minutes" not in words:
        return words
    position = words.index("--minutes") + 1
    return [*words[:position], str(float(words[position]) / 600), *words[position + 1 :]]


def test_make_targets_and_extras_in_documents_exist():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    printed = "\n".join(path.read_text(encoding="utf-8") for path in documents())
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", printed, re.MULTILINE))
    assert {"demo", "test", "docs"} <= targets <= set(re.findall(r"^([a-z]+):", makefile, re.M))
    lists = re.findall(r"pip install \"(?:vestige|\.)\[([\w,]+)\]", printed)
    extras = {extra for names in lists for extra in names.split(",")}
    assert {"demo"} <= extras <= set(project["optional-dependencies"])
