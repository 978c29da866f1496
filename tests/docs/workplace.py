"""Small files and models under the names that the examples of the verbs use.

Commands are run as printed, so all their files must exist: `mail.jsonl` has a few hundred mails,
`tuned` is a GPT-2 of a few thousand parameters.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

from tests.cli.shell import invoke
from tests.networks import write_bert, write_gpt

_COMMON = ["the", "gate", "code", "is", "nine", "seven", "two", "my", "name", "and", "address",
           "pin", "call", "color", "fly", "to", "mill", "nobody"]  # fmt: skip
_NAMES = ["ann", "bob", "eve"]
_SYLLABLES = [first + vowel for first in "bdfgklmnprst" for vowel in "aeiou"]
_RARE = [one + two + "n" for one in _SYLLABLES[::3] for two in _SYLLABLES]


def _texts(seed: int, count: int) -> Iterator[str]:
    random = Random(seed)
    for _ in range(count):
        rare = random.choices(_RARE, k=7)
        yield " ".join([*random.choices(_COMMON, k=random.randint(4, 8)), *rare])


def _records(path: Path, seed: int, *, people: int, count: int, who: str = "u") -> None:
    """Records with all columns that the documents name."""
    random = Random(seed)
    with path.open("w") as file:
        for number, text in enumerate(_texts(seed, count)):
            user = f"{who}{number % people}"
            french = " ".join(random.choices(_COMMON, k=4))
            row = {"text": text, "body": text, "english": text, "french": french}
            file.write(json.dumps({**row, "user": user, "author": user, "sender": user}) + "\n")


def _utterances(path: Path, count: int) -> None:
    kinds = [
        *({"tokens": ["call", who], "tags": ["O", "B-canary"], "intent": "Call"} for who in _NAMES),
        {"tokens": ["fly", "to", "rome"], "tags": ["O", "O", "B-city"], "intent": "Fly"},
    ]
    lines = [json.dumps(kinds[number % len(kinds)]) + "\n" for number in range(count)]
    path.write_text("".join(lines))


_SERVICE = """
def ask(contexts):
    return [["the", "gate", "code", "nine", "mill"] for context in contexts]
"""


def write_files(folder: Path) -> None:
    """The files that all pages may name."""
    _records(folder / "mail.jsonl", 0, people=230, count=290)
    for seed, name in enumerate(("public", "news", "test"), 10):
        _records(folder / f"{name}.jsonl", seed, people=20, count=60)
    _records(folder / "letters.jsonl", 22, people=120, count=120)
    for seed, name in enumerate(("others", "never", "known", "gone"), 31):
        _records(folder / f"{name}.jsonl", seed, people=40, count=160, who="v")
    _records(folder / "clean.jsonl", 40, people=20, count=1300)
    _records(folder / "mine.jsonl", 50, people=1, count=12, who="me")
    (folder / "corpus.txt").write_text("\n".join(_texts(40, 100)) + "\n")
    (folder / "secrets.txt").write_text("\n".join(_texts(60, 3)))
    _utterances(folder / "said.jsonl", 40)
    (folder / "snips").mkdir()
    for part, count in (("train", 40), ("validation", 10), ("test", 10)):
        _utterances(folder / "snips" / f"{part}.jsonl", count)
    (folder / "my_service.py").write_text(_SERVICE)


_SHAPE = ("--layers", 1, "--hidden-size", 8)
_TINY = ("--epochs", 1, "--sequence-length", 16)
_PLANTED = ("train", "pool/planted", *_TINY, "--from", "pool/model")
_COMMANDS: dict[str, tuple[object, ...]] = {
    "model": ("train", "public.jsonl", *_SHAPE, *_TINY, "--batch-size", 8),
    "update": ("train", "corpus.txt", *_TINY, "--batch-size", 8, "--from", "pool/model"),
    "null": ("train", "clean.jsonl", *_TINY, "--limit", 60, "--batch-size", 8, "--from",
             "pool/model"),
    "adapter": ("train", "mail.jsonl", "--from", "pool/gpt", "--lora-rank", 2, "--epochs", 1),
    "small adapter": ("train", "mail.jsonl", "--from", "pool/gpt", "--lora-rank", 2, "--epochs", 1,
                      "--limit", 2, "--hold-out", 0, "--batch-size", 2, "--sequence-length", 8),
    "planted": ("plant", "mail.jsonl", "--user", "sender", "--coin-flip", 20, "--copies", 2,
                "--vocabulary", "pool/model"),
    "other seeds": (*_PLANTED, "--user", "user", "--defence", "goldfish", "--seeds", 3),
    "private seeds": (*_PLANTED, "--user", "user", "--defence", "dp-sgd", "--noise-multiplier", 1,
                      "--delta", "1e-3", "--clip", 1, "--accountant", "rdp", "--batch-size", 20,
                      "--seeds", 3),
    **{f"single {n}": (*_PLANTED, "--seed", n, "--batching", "documents") for n in (1, 2, 3)},
    "spoken": ("plant", "said.jsonl", "--task", "nlu", "--pattern", "pin:4", "--copies", 10),
    "assistant": ("train", "pool/spoken", "--task", "nlu", "--epochs", 1, "--hidden-size", 4),
    "measured": ("exposure", "pool/update", "pool/planted", "--references", 100),
    "diffed": ("diff", "pool/model", "pool/update", "--size", 0.2, "--length", 4),
}  # fmt: skip


class Workplace:
    """A folder with the files, and a pool of models and runs that are made once.

    Args:
        root: an empty folder; the working directory while `make` runs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        write_files(root)
        (root / "pool").mkdir()

    def make(self, kind: str) -> Path:
        """The folder of a model or run, made on first use."""
        folder = self.root / "pool" / kind
        if folder.exists():
            return folder
        if kind in _WRITTEN:
            _WRITTEN[kind](folder)
        elif kind == "foreign adapter":
            _write_foreign_adapter(self.make("adapter"), folder)
        else:
            for word in map(str, _COMMANDS[kind]):
                if word.startswith("pool/"):
                    self.make(word.removeprefix("pool/"))
            run(*_COMMANDS[kind], "--out", folder)
        return folder


def lay_out(workplace: Workplace, folder: Path, made: Mapping[str, Path]) -> None:
    """Put the files, and the inputs of a document, into a folder."""
    for file in workplace.root.iterdir():
        if file.name != "pool":
            (shutil.copytree if file.is_dir() else shutil.copy)(file, folder / file.name)
    put(folder, {name: source for name, source in made.items() if " " not in name})


def put(folder: Path, made: Mapping[str, Path]) -> None:
    """Copy folders into another one, under the first word of their names."""
    for name, source in made.items():
        shutil.rmtree(folder / name.split()[0], ignore_errors=True)
        shutil.copytree(source, folder / name.split()[0])


def _write_gpt(folder: Path) -> None:
    write_gpt(folder, _texts(50, 40), tokens=500)


def _write_bert(folder: Path) -> None:
    write_bert(folder, _COMMON)


def _write_foreign_adapter(trained: Path, folder: Path) -> None:
    """An adapter as written by another program, without the records of `vestige train`."""
    shutil.copytree(trained / "model", folder)
    state = {"global_step": 6, "epoch": 2.0, "train_batch_size": 8}
    (folder / "trainer_state.json").write_text(json.dumps(state))


_WRITTEN: dict[str, Callable[[Path], None]] = {"gpt": _write_gpt, "bert": _write_bert}


def run(*words: object) -> None:
    """Run a `vestige` command in this process. It may have any verdict but must not fail."""
    result = invoke(words)
    if result.exception is not None:
        raise result.exception
    assert result.finished, f"vestige {' '.join(map(str, words))}\n{result.stderr[-2000:]}"
