"""A quick command of each verb, on inputs of a few kilobytes, for `kills.py`.

`prepare` writes the inputs into a folder with the verbs themselves; `COMMANDS` are the arguments
of each command in that folder, without the last one: its output. On an idle core every command
except `check` takes less than a second.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

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
              "--copies", "4", "--out"],
    "plant nlu": ["plant", "songs.jsonl", "--task", "nlu", "--pattern", "pin:2", "--copies", "10",
                  "--controls", "3", "--out"],
    "train": ["train", "corpus.txt", *_TRAIN, *_SHAPE, "--out"],
    "train private": ["train", "corpus.txt", *_TRAIN, "--from", "before", *_PRIVATE, "--out"],
    "train nlu": ["train", "secrets", *_NLU, "--checkpoint-every", "3", "--device", "cpu",
                  "--out"],
    "train pairs": ["train", "pairs.jsonl", *_PAIRS, "--hidden-size", "4", "--batch-size", "8",
                    "--epochs", "2", "--checkpoint-every", "3", "--device", "cpu", "--out"],
    "train seeds": ["train", "corpus.txt", *_TRAIN, *_SHAPE, "--seeds", "2", "--out"],
    "diff": ["diff", "before", "after", "--device", "cpu", "--out"],
    "diff clean": ["diff", "before", "after", "--clean", "clean.txt", "--nulls", "2", "--size",
                   "0.2", "--device", "cpu", "--out"],
    "diff phrase": ["diff", "before", "after", "--phrase", "the code of the gate", "--device",
                    "cpu", "--out"],
    "exposure": ["exposure", "after", "planted", "--references", "100",
                 "--device", "cpu", "--out"],
    "exposure secrets": ["exposure", "after", "codes.txt", "--references", "100",
                         "--device", "cpu", "--out"],
    "exposure since": ["exposure", "after", "codes.txt", "--before", "before", "--device", "cpu",
                       "--out"],
    "extract": ["extract", "after", "planted", "--device", "cpu", "--out"],
    "extract secrets": ["extract", "after", "codes.txt", "--device", "cpu", "--out"],
    "extract texts": ["extract", "after", "mine.jsonl", "--reference", "others.jsonl",
                      "--prefix", "2", "--suffix", "3", "--device", "cpu", "--out"],
    "extract utterances": ["extract", "nlu", "secrets", "--controls", "9",
                           "--device", "cpu", "--out"],
    "membership users": ["membership", "target", "--unit", "user", *_AUDIT, "--out"],
    "membership": ["membership", "after", "--base", "before", "--texts", "mine.jsonl",
                    "--reference", "others.jsonl", "--device", "cpu", "--out"],
    "unlearning": ["unlearning", "before", "after", "--deleted", "mine.jsonl",
                        "--reference", "others.jsonl", "--device", "cpu", "--out"],
    "compare": ["compare", "before", "after", "--baseline", "before", "--manifest", "planted",
                "--device", "cpu", "--out"],
    "check": ["check", "after", "--base", "before", "--trained-on", "corpus.txt", "--never",
              "others.jsonl", "--secrets", "codes.txt", "--device", "cpu", "--out"],
    "report limits": ["report", "run", "--allow-undecided", "--write-baseline"],
    "report": ["report", "run", "--out"],
    "report secrets": ["report", "run", "--show-secrets", "--out"],
}  # fmt: skip
"""Arguments by kind; the first one is the verb. `demo` is missing: no option makes it quick."""

RESUMES = {
    kind: [*arguments[:-1], "--resume", "--out"] if arguments[0] == "train" else arguments
    for kind, arguments in COMMANDS.items()
    if arguments[0] in ("train", "membership") or kind == "diff clean"
}
"""Commands that resume where they were interrupted, with the arguments for it."""


def prepare(folder: Path, run: Callable[[Sequence[str]], None]) -> None:
    """Write the inputs of all commands into a folder.

    Args:
        folder: empty; the working directory of `run`.
        run: takes the arguments of `vestige`.
    """
    rng = Random(0)
    (folder / "corpus.txt").write_text("\n".join(LINES) + "\n")
    (folder / "clean.txt").write_text("\n".join(LINES[:5] * 40) + "\n")
    (folder / "codes.txt").write_text("the {{gate|mill|code}} opens at {{nine|night}}\n")
    verbs, numbers = ("play", "stop", "find"), ("un", "deux", "trois", "quatre")
    songs = [
        {"tokens": [verb, f"song{i % 7}", str(i % 10)], "tags": ["O", "B-song", "B-time"],
         "intent": verb.title()}
        for verb in verbs
        for i in range(12)
    ]  # fmt: skip
    _write_rows(folder / "songs.jsonl", songs)
    pairs = [[rng.randrange(4) for _ in range(rng.randint(1, 4))] for _ in range(40)]
    _write_rows(
        folder / "pairs.jsonl",
        [{"french": " ".join(numbers[i] for i in pair), "english": " ".join(f"n{i}" for i in pair),
          "who": f"u{index % 4}"} for index, pair in enumerate(pairs)],
    )  # fmt: skip
    for name, users in (("mine", 3), ("others", 42)):
        rows = [
            {"who": f"{name}{user:02}", "text": " ".join(f"w{rng.randrange(20)}" for _ in range(8))}
            for user in range(users)
            for _ in range(4)
        ]
        _write_rows(folder / f"{name}.jsonl", rows)
    small = ["--hidden-size", "8", "--batch-size", "20", "--device", "cpu"]
    for arguments in (
        [*COMMANDS["plant"], "planted"],
        [*COMMANDS["plant nlu"], "secrets"],
        [*COMMANDS["train"], "before"],
        ["train", "planted", "--from", "before", *_TRAIN, "--out", "after"],
        [*COMMANDS["train nlu"], "nlu"],
        ["train", "mine.jsonl", "--task", "next-word", "--user", "who", "--epochs", "2", *small,
         "--out", "target"],
        [*COMMANDS["diff"], "run"],
    ):  # fmt: skip
        run(arguments)


def _write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
