"""Every command and program that a document prints runs as it is printed, on a few small files.

The commands of a document are run one after another in a folder of its own. What cannot be run
here is in `NOT_RUN` with a reason. The options of every command are looked up in its verb's page,
which a test of the command line keeps true.
"""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.docs.documents import REPOSITORY, blocks, documents
from tests.docs.workplace import Workplace, lay_out, put, run

Words = list[str]
_EXAMPLE = re.compile(r"^    (vestige [^\n]*(?:\n {4,}(?!vestige)[^\n]+)*)", re.MULTILINE)
"""An example of a verb's page; a long one goes on in the next line."""

_FILE = re.compile(r"# ([\w-]+\.(?:yaml|toml))\n")


def commands(path: Path) -> dict[str, list[list[Words]]]:
    """The words of each `vestige` command, block by block; examples of a verb are a block each.

    A block of Python is one command of two words: `python` and its source. A block whose first line
    is a comment with a file's name is that file: `file`, its name and its text.

    By section in README, whose sections do not build on each other; else the whole document.
    """
    document = path.relative_to(REPOSITORY).as_posix()
    found: dict[str, list[list[Words]]] = {}
    for block in blocks(path):
        name = f"{document}: {block.section}" if document == "README.md" else document
        if block.language == "python":
            found.setdefault(name, []).append([["python", block.text]])
        elif block.language in ("yaml", "toml") and (named := _FILE.match(block.text)):
            found.setdefault(name, []).append([["file", named[1], block.text]])
        lines = [line for line in block.text.splitlines() if line.startswith("vestige ")]
        if lines and "[OPTIONS]" not in block.text:
            words = [shlex.split(line, comments=True)[1:] for line in lines]
            found.setdefault(name, []).append(words)
    if path.parent.name == "verbs":
        text = path.read_text(encoding="utf-8")
        found[document] = [[shlex.split(example)[1:]] for example in _EXAMPLE.findall(text)]
    return found


PRINTED = {name: found for path in documents() for name, found in commands(path).items()}

MINUTES = {
    "README.md: What would leak, and which defence helps?",
    "README.md: Was my text used?",
    "docs/audit-an-intent-model.md",
    "docs/audit-before-release.md",
    "docs/before-you-publish.md",
    "docs/train-with-privacy.md",
    "docs/verbs/check.md",
    "docs/verbs/compare.md",
    "docs/verbs/diff.md",
    "docs/verbs/train.md",
    "docs/was-my-text-used.md",
}
"""Those that train many models: `make long` runs them."""

TAKEN = {
    "README.md: In Python": {"base": "model", "adapter": "update"},
    "README.md: What did this update reveal?": {"my-base": "model", "my-adapter": "update"},
    "docs/index.md": {"before": "model", "after": "update"},
    "docs/audit-an-intent-model.md": {
        "assistant-0": "assistant",
        "assistant-1": "assistant",
        "assistant-2": "assistant",
    },
    "docs/train-with-privacy.md": {"my-model": "gpt", "public-model": "model"},
    "docs/before-you-publish.md": {"base-model": "chat", "my-adapter": "foreign adapter"},
    "docs/verbs/check.md": {"my-adapter": "foreign adapter", "base": "gpt", "tuned": "adapter"},
    "docs/configuration.md": {"before": "model", "after": "update"},
    "docs/verbs/membership.md": {
        "base": "gpt",
        "fine-tuned": "gpt",
        "my-lora-adapter": "adapter",
    },
    "docs/were-these-texts-used.md": {"base": "gpt", "fine-tuned": "gpt"},
    "docs/how-much-comes-back.md": {"fine-tuned": "gpt"},
    "docs/secrets-you-have.md": {"fine-tuned": "gpt", "base": "gpt"},
    "docs/are-they-gone.md": {"before": "model", "after": "update", "anew": "null"},
    "docs/verbs/unlearning.md": {"before": "model", "after": "update", "anew": "null"},
    "docs/verbs/compare.md": {
        "public": "model",
        "planted": "planted",
        "goldfish": "other seeds",
        "dp": "private seeds",
        **{f"runs/{seed}": f"single {seed}" for seed in (1, 2, 3)},
    },
    "docs/verbs/diff.md": {
        "before": "gpt",
        "after": "adapter",
        "base": "gpt",
        "adapter": "small adapter",
    },
    "docs/verbs/exposure.md": {
        "trained": "update",
        "planted": "planted",
        "tuned": "gpt",
        "base": "gpt",
    },
    "docs/verbs/extract.md": {
        "trained": "update",
        "planted": "planted",
        "tuned": "gpt",
        "nlu": "assistant",
        "planted-nlu": "spoken",
    },
    "docs/verbs/plant.md": {"base": "model"},
    "docs/in-your-training.md": {"my-model": "gpt"},
    "docs/reproduction/private-utility.md": {"DIR/comparison": "diffed"},
    "docs/gate-a-release.md": {"diff-run": "diffed", "last-release": "diffed"},
    "docs/verbs/report.md": {
        "run": "diffed",
        "diff-run": "diffed",
        "exposure-run": "measured",
        "last-release": "diffed",
    },
    "docs/verbs/train.md": {
        "public": "model",
        "other": "model",
        "gpt2-folder": "gpt",
        "bert-folder": "bert",
        "planted": "planted",
        "planted --task nlu": "spoken",
    },
}
"""What a document takes for granted beside the files: under which name, and what it is.

A name with options is for the commands in which it stands so.
"""

NOT_RUN = {
    "demo": "trains for a minute on a text of another package; tests/cli/test_demo.py runs it",
}
"""Verbs whose commands are not run here, and why."""


def test_every_document_that_prints_a_command_is_known():
    assert {"README.md: What did this update reveal?", "docs/verbs/diff.md"} | MINUTES <= set(
        PRINTED
    )
    assert set(TAKEN) <= set(PRINTED), "a document that prints no command takes nothing"


@pytest.mark.parametrize("document", PRINTED)
def test_the_options_of_a_command_are_those_of_its_verb(document):
    printed = [words for block in PRINTED[document] for words in block]
    for words in (words for words in printed if words[0] not in ("python", "file")):
        page = (REPOSITORY / "docs" / "verbs" / f"{words[0]}.md").read_text(encoding="utf-8")
        known = set(re.findall(r"`(--[\w-]+)", "\n".join(re.findall(r"^\| (.*?) \|", page, re.M))))
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= known, f"{document}: vestige {words[0]} has no {options - known}"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("documents"))


@pytest.mark.parametrize(
    "document",
    [pytest.param(d, marks=pytest.mark.long) if d in MINUTES else d for d in PRINTED],
)
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # of a training without a GPU
def test_the_commands_of_a_document_run(document, workplace, tmp_path, monkeypatch):
    monkeypatch.chdir(workplace.root)
    taken = TAKEN.get(document, {})
    made = {name: workplace.make(kind) for name, kind in taken.items()}
    lay_out(workplace, tmp_path, made)
    monkeypatch.chdir(tmp_path)
    for block in PRINTED[document]:
        for out in _outs(block):  # another block's: each shows another way
            shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
        for words in block:
            if words[0] == "python":
                exec(compile(words[1], document, "exec"), {})
            elif words[0] == "file":
                Path(words[1]).write_text(words[2], encoding="utf-8")
            elif words[0] not in NOT_RUN and not _asks_a_server(words):
                put(tmp_path, {n: made[n] for n in made if " " in n and n in " ".join(words)})
                run(*_sooner(words))
                assert all(out.exists() for out in _outs([words]))


def _asks_a_server(words: Words) -> bool:
    """Whether a command asks a server, which is not there: tests/workflows have one."""
    return any(word.startswith("openai:") for word in words)


def _sooner(words: Words) -> Words:
    """The command with a tenth of a second for each minute, and passages as short as the texts
    here: it is run, and what it finds is not looked at."""
    if words[0] == "extract" and "--reference" in words and "--prefix" not in words:
        return [*words, "--prefix", "9", "--suffix", "9"]
    if "--minutes" not in words:
        return words
    place = words.index("--minutes") + 1
    return [*words[:place], str(float(words[place]) / 600), *words[place + 1 :]]


def _outs(block: list[Words]) -> list[Path]:
    return [Path(words[words.index("--out") + 1]) for words in block if "--out" in words]


def test_what_make_and_pip_are_asked_for_is_there():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    printed = "\n".join(path.read_text(encoding="utf-8") for path in documents())
    targets = set(re.findall(r"^make ([a-z]+)", printed, re.MULTILINE))
    assert {"demo", "test", "docs"} <= targets <= set(re.findall(r"^([a-z]+):", makefile, re.M))
    extras = set(re.findall(r"pip install \"(?:vestige|\.)\[(\w+)\]", printed))
    assert {"demo"} <= extras <= set(project["optional-dependencies"])
