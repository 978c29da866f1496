"""A quick command of each verb, on inputs of a few kilobytes: what others kill, race and starve.

`prepare` writes the inputs into a folder with the verbs themselves; `COMMANDS` are the words of
each command in that folder, with OUT where it writes. No command but `check` takes a
second on a quiet core.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

OUT = "OUT"
LINES = [
    "the gate opens at nine",
    "the code of the gate is new",
    "nobody knows the code at night",
    "a lantern stands at the gate of the mill",
    "the miller knows a new code",
] * 8
_SHAPE = ["--layers", "1", "--hidden-size", "8"]
_QUICK = ["--batch-size", "2", "--sequence-length", "8", "--checkpoint-every", "3"]
_TRAIN = ["--epochs", "2", *_QUICK, "--device", "cpu"]
_PRIVATE = ["--defence", "dp-sgd", "--noise-multiplier", "1", "--delta", "1e-3", "--clip", "1"]
_PRIVATE += ["--accountant", "rdp", "--accept-private-vocabulary"]
_NLU = ["--task", "nlu", "--epochs", "2", "--hidden-size", "6", "--embedding-size", "4"]
_PAIRS = ["--task", "translation", "--source", "french", "--text", "english", "--user", "who"]
_AUDIT = ["--texts", "mine.jsonl", "--reference", "others.jsonl", "--user", "who", "--shadows", "2"]
_AUDIT += ["--epochs", "2", "--hidden-size", "8", "--batch-size", "20", "--device", "cpu"]

COMMANDS: dict[str, list[str]] = {
    "plant": ["plant", "corpus.txt", "--phrase", "nobody opens a new lantern",
              "--copies", "4", "--out", OUT],
    "plant nlu": ["plant", "songs.jsonl", "--task", "nlu", "--pattern", "pin:2", "--copies", "10",
                  "--controls", "3", "--out", OUT],
    "train": ["train", "corpus.txt", *_TRAIN, *_SHAPE, "--out", OUT],
    "train private": ["train", "corpus.txt", *_TRAIN, "--from", "before", *_PRIVATE, "--out", OUT],
    "train nlu": ["train", "secrets", *_NLU, "--checkpoint-every", "3", "--device", "cpu",
                  "--out", OUT],
    "train pairs": ["train", "pairs.jsonl", *_PAIRS, "--hidden-size", "4", "--batch-size", "8",
                    "--epochs", "2", "--checkpoint-every", "3", "--device", "cpu", "--out", OUT],
    "train seeds": ["train", "corpus.txt", *_TRAIN, *_SHAPE, "--seeds", "2", "--out", OUT],
    "diff": ["diff", "before", "after", "--device", "cpu", "--out", OUT],
    "diff clean": ["diff", "before", "after", "--clean", "clean.txt", "--nulls", "2", "--size",
                   "0.2", "--device", "cpu", "--out", OUT],
    "diff phrase": ["diff", "before", "after", "--phrase", "the code of the gate", "--device",
                    "cpu", "--out", OUT],
    "exposure": ["exposure", "after", "planted", "--references", "100",
                 "--device", "cpu", "--out", OUT],
    "exposure secrets": ["exposure", "after", "codes.txt", "--references", "100",
                         "--device", "cpu", "--out", OUT],
    "exposure since": ["exposure", "after", "codes.txt", "--before", "before", "--device", "cpu",
                       "--out", OUT],
    "extract": ["extract", "after", "planted", "--device", "cpu", "--out", OUT],
    "extract secrets": ["extract", "after", "codes.txt", "--device", "cpu", "--out", OUT],
    "extract texts": ["extract", "after", "mine.jsonl", "--reference", "others.jsonl",
                      "--prefix", "2", "--suffix", "3", "--device", "cpu", "--out", OUT],
    "extract utterances": ["extract", "nlu", "secrets", "--controls", "9",
                           "--device", "cpu", "--out", OUT],
    "membership users": ["membership", "target", "--unit", "user", *_AUDIT, "--out", OUT],
    "membership": ["membership", "after", "--base", "before", "--texts", "mine.jsonl",
                    "--reference", "others.jsonl", "--device", "cpu", "--out", OUT],
    "unlearning": ["unlearning", "before", "after", "--deleted", "mine.jsonl",
                        "--reference", "others.jsonl", "--device", "cpu", "--out", OUT],
    "compare": ["compare", "before", "after", "--baseline", "before", "--manifest", "planted",
                "--device", "cpu", "--out", OUT],
    "check": ["check", "after", "--base", "before", "--trained-on", "corpus.txt", "--never",
              "others.jsonl", "--secrets", "codes.txt", "--device", "cpu", "--out", OUT],
    "report limits": ["report", "run", "--allow-undecided", "--write-baseline", OUT],
    "report": ["report", "run", "--out", OUT],
    "report secrets": ["report", "run", "--show-secrets", "--out", OUT],
}  # fmt: skip
"""Words by kind; the first word is the verb. `demo` has no options that would make it quick."""

RESUMES = {
    kind: [*words, "--resume"] if words[0] == "train" else words
    for kind, words in COMMANDS.items()
    if words[0] in ("train", "membership") or kind == "diff clean"
}
"""Those that go on where they were interrupted, and the words that make them."""


def prepare(folder: Path, run: Callable[[Sequence[str]], None]) -> None:
    """Write the inputs of all commands into a folder.

    Args:
        folder: an empty one, the working directory of `run`.
        run: takes the words behind `vestige`.
    """
    lots = Random(0)
    (folder / "corpus.txt").write_text("\n".join(LINES) + "\n")
    (folder / "clean.txt").write_text("\n".join(LINES[:5] * 40) + "\n")
    (folder / "codes.txt").write_text("the {{gate|mill|code}} opens at {{nine|night}}\n")
    verbs, numbers = ("play", "stop", "find"), ("un", "deux", "trois", "quatre")
    songs = [
        {"words": [verb, f"song{i % 7}", str(i % 10)], "tags": ["O", "B-song", "B-time"],
         "intent": verb.title()}
        for verb in verbs
        for i in range(12)
    ]  # fmt: skip
    _rows(folder / "songs.jsonl", [{"tokens": one.pop("words"), **one} for one in songs])
    pairs = [[lots.randrange(4) for _ in range(lots.randint(1, 4))] for _ in range(40)]
    _rows(
        folder / "pairs.jsonl",
        [{"french": " ".join(numbers[i] for i in said), "english": " ".join(f"n{i}" for i in said),
          "who": f"u{place % 4}"} for place, said in enumerate(pairs)],
    )  # fmt: skip
    for name, users in (("mine", 3), ("others", 42)):
        who = [f"{name}{number:02}" for number in range(users) for _ in range(4)]
        words = [" ".join(f"w{lots.randrange(20)}" for _ in range(8)) for _ in who]
        _rows(
            folder / f"{name}.jsonl",
            [{"who": w, "text": t} for w, t in zip(who, words, strict=True)],
        )
    small = ["--hidden-size", "8", "--batch-size", "20", "--device", "cpu"]
    for line in (
        [*COMMANDS["plant"][:-1], "planted"],
        [*COMMANDS["plant nlu"][:-1], "secrets"],
        [*COMMANDS["train"][:-1], "before"],
        ["train", "planted", "--from", "before", *_TRAIN, "--out", "after"],
        [*COMMANDS["train nlu"][:-1], "nlu"],
        ["train", "mine.jsonl", "--task", "next-word", "--user", "who", "--epochs", "2", *small,
         "--out", "target"],
        [*COMMANDS["diff"][:-1], "run"],
    ):  # fmt: skip
        run(line)


def _rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
