"""Sound command lines of every verb, and hostile values for their arguments.

Verbs and options are read from the commands, so new ones are tried without a line here. A verb
without a sound line gets one from its required arguments.
"""

import shlex
from functools import cache
from pathlib import Path
from typing import Any, get_args

from hypothesis import strategies as st

from tests.fuzz.cases import Case
from tests.fuzz.world import COMMANDS, PHRASE, SMALL, TINY
from vestige.cli import app
from vestige.cli.options import number_type

LINES = (
    *COMMANDS.values(),
    "demo",
    "plant W/planted --verify",
    "plant W/planted-nlu --verify",
    "plant W/corpus.jsonl --user user --per-user --repetitions 1,2 --controls 4",
    "plant W/corpus.txt --coin-flip 6 --canary-kind words --length 2 --json",
    "plant W/corpus.txt --vocabulary W/before --phrase 'gate gate gate gate' --json",
    f"train W/corpus.txt {TINY} --tokenizer bpe --vocab-size 300 --json",
    "train W/corpus.parquet --epochs 1 --architecture transformer --layers 1 --hidden-size 6 "
    "--sequence-length 8 --device cpu",
    f"train W/corpus.txt.gz {TINY}",
    "train W/corpus.csv --from W/before --epochs 1 --defence goldfish --batch-size 4 --device cpu",
    "train W/corpus.jsonl --user user --from W/before --epochs 1 --defence dp-fedavg "
    "--noise-multiplier 1 --batch-size 4 --accept-private-vocabulary --device cpu",
    "train W/corpus.jsonl --from W/before --epochs 1 --defence dp-sgd --noise-multiplier 1 "
    "--batch-size 4 --accept-private-vocabulary --device cpu",
    "train W/corpus.jsonl --user user --from W/before --epochs 1 --defence adversarial "
    "--batch-size 4 --device cpu",
    "train W/corpus.jsonl --user user --from W/before --epochs 1 --defence triplet "
    "--batch-size 4 --device cpu",
    f"train W/planted {TINY} --resume --out C/before",
    f"train W/corpus.jsonl {TINY} --seeds 2",
    "train W/planted-nlu --task nlu --epochs 1 --hidden-size 4 --embedding-size 4 --dropout "
    "--early-stopping --char-embeddings --device cpu --json",
    "check W/adapter --trained-on W/corpus.jsonl --never W/clean.jsonl --minutes 0.01 "
    "--device cpu --json",
    "diff W/hf W/adapter --size 0.1 --length 4 --device cpu --json",
    "diff W/before W/after --size 0.1 --length 4 --clean W/clean.jsonl --nulls 2 --device cpu",
    "diff W/hf W/hf-shards --phrase gate --budget 20 --device cpu",
    "diff W/hf W/adapter --phrase gate --budget 20 --device cpu --json",
    f"diff W/before W/after --phrase '{PHRASE}' --budget 20 --device cpu",
    "exposure W/before W/planted --references 100 --exact 10 --device cpu --json",
    "exposure W/after W/choices.txt --before W/before --references 100 --device cpu --json",
    "exposure W/before W/choices.txt --references 100 --device cpu --json",
    "extract W/before W/choices.txt --beam 3 --device cpu --json",
    "extract W/before W/planted/manifest.json --prefix 2 --device cpu --json",
    "extract W/nlu --pattern {name} --intent Play --candidates name=@W/names.txt "
    "--truth xyzzyred --rank-sample 20",
    "membership W/next-word --unit user --texts W/mine.jsonl --reference W/corpus.jsonl "
    f"--user user --shadows 2 {SMALL} --out C/audit",
    "membership W/next-word --unit user --texts W/mine.jsonl --reference W/corpus.jsonl "
    f"--user user --shadows 2 {SMALL} --out C/audit-cut",
    f"{COMMANDS['queried']} --json --out C/queried-cut",
    "membership W/after --base W/before --texts W/mine.jsonl --reference W/corpus.jsonl "
    "--device cpu",
    "extract W/before W/corpus.jsonl --prefix 2 --suffix 2 --device cpu",
    "unlearning W/before W/after --deleted W/corpus.jsonl --reference W/clean.jsonl "
    "--device cpu --json",
    "compare a=W/before b=W/after --test W/mine.jsonl --user user --group 2 --baseline a "
    "--device cpu --json",
    *(
        f"report W/{run}"
        for run in (
            "run-diff", "run-rank", "run-exposure", "run-completion", "run-extraction",
            "run-anatomy", "run-comparison", "audit", "before/run", "private/run",
        )
    ),
    "report W/run-diff W/run-rank --show-secrets",
    "report W/run-diff W/run-exposure --since W/run-diff",
    "report W/run-diff W/run-exposure --allow-undecided --fail-above exposure=3 "
    "--junit O/report.xml --markdown O/report.md --write-baseline O/accepted.json",
)  # fmt: skip
"""Sound command lines; a missing --out is O/new."""

INTEGERS = (
    "0", "-1", "1", "2", "3", "7", str(2**31), str(2**31 - 1), str(2**63), str(2**63 - 1),
    str(10**18), str(-(2**63)), "9" * 400, "9" * 5000, "1.5", "1e3", "", " 1", "0x10", "٣", "one",
)  # fmt: skip
NUMBERS = (
    "nan", "inf", "-inf", "-0.0", "0", "1", "-1", "0.5", "1e308", "1e-320", "1e-14", "2", "1e400",
    "1e18", "0.999999999999999999", "", "half", "1_0",
)  # fmt: skip
TEXTS = (
    "", " ", "-", "--", "=", ":", ",", "a:b", "a=b", "{", "{}", "{digit:9}", "{digit:-1}", "%s",
    "\n", "\x1b[31mred", "\u202egnitset", "\udcff", "the gate", "zebra", "x" * 100_000,
    "é" * 300, "../..", "1,2", "1,1,0,-1", "os:system", "service:fails", "service:leaves",
    "service:nonsense", "service:not_callable", "service:none", "text", "user", "user:user", "meta",
    "cuda:99", "mps", "cpu:0", "jsonl", "127.0.0.1:1", "name=", "name=@W/none",
    "'", '"', "\\", "$HOME", "🦊", "a\tb", "<b>", "[bold]", "[/]", "۱۲", "\ufeff", "NaN", "null",
    "[]", "auto", "none", "pin:4", "call:4", "color:4", "federalist", "gpt2", "owner/name",
)  # fmt: skip
PRIVATE = ("phrase", "truth", "prefix", "suffix", "pattern", "person", "slots")
"""Options whose values are secret."""
SECRET_VALUES = (
    PHRASE, "xyzzyred", "quuxthe", "fnord41", "fnord01", "quuxthe zebra", "\x1b[31mquux",
)  # fmt: skip
PATHS = (
    "O/missing", "O/missing/below", "O/empty-file", "O/empty-file/below", "O/empty-folder",
    "O/full-folder", "O/binary", "O/deep.json", "O/fifo", "O/fifo.jsonl", "O/loop", "O/dangling",
    "O/unreadable", "O/unreadable-folder", "O/unreadable-folder/x", "O/read-only/new", "O/new",
    "O/a/b/c", "O/\x1b[31m\u202e.jsonl", "O/\udcff", f"O/{'n' * 255}", f"O/{'n' * 300}",
    f"O/{'d/' * 2100}x", "/dev/null", "/dev/full", "/dev/zero", "/dev/urandom", ".", "", "/",
    "/proc/self/mem", "/proc/self/environ", "O/new.jsonl", "O/page.html",
)  # fmt: skip
INPUTS = (
    "W/corpus.jsonl", "W/corpus.txt", "W/corpus.txt.gz", "W/corpus.csv", "W/corpus.parquet",
    "W/utterances.jsonl", "W/names.txt", "W/service.py", "W/hf", "W/hf/config.json",
    *(f"W/{name}" for name in COMMANDS), "W/before/model", "W/before/checkpoint.safetensors",
    "W/planted/manifest.json", "W/planted-nlu/manifest.json", "W/audit", "W/audit.shadows",
    "W/before/run", "W/before/data/training",
)  # fmt: skip
OUTSIDE = {"/": "O/full-folder", "../..": "O/..", "/proc/self/mem": "/dev/null"}
"""Paths where the fuzzer must not write, and replacements for them."""
UNKNOWN = ("--nonsense", "--nonsense=1", "-z", "--", "extra")


def verbs() -> tuple[str, ...]:
    """Every verb."""
    return tuple(app.names())


def _options(verb: str) -> tuple[Any, ...]:
    options = app.verb_app(verb, app.function_of(verb)).assemble_argument_collection()
    return tuple(option for option in options if option.names[:1] != ("*",))


OPTIONS = {verb: _options(verb) for verb in verbs()}
"""Read here, since imports within a strategy must not use `random`."""


@cache
def sound(verb: str) -> tuple[tuple[str, ...], ...]:
    """Sound command lines of a verb."""
    lines = [tuple(shlex.split(line)) for line in LINES if line.split(" ")[0] == verb]
    return tuple(_with_out(line) for line in lines) or (_required(verb),)


@st.composite
def command_lines(draw: st.DrawFn, verb: str) -> Case:
    """A sound line of the verb with one to three changes."""
    words = list(draw(st.sampled_from(sound(verb))))
    changed: list[str] = []
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        words, new = draw(_change(verb, words))
        changed += new
    return Case(tuple(words), changed=tuple(changed))


@st.composite
def _change(draw: st.DrawFn, verb: str, words: list[str]) -> tuple[list[str], list[str]]:
    """The words with one replaced, removed or added; and the new words."""
    kind = draw(st.sampled_from(("option",) * 8 + ("argument",) * 3 + ("drop", "unknown", "twice")))
    if kind == "argument":
        first = next((n for n, w in enumerate(words) if w.startswith("--")), len(words))
        if first > 1:
            position = draw(st.integers(1, first - 1))
            path = draw(st.sampled_from((*PATHS, *INPUTS)) | st.sampled_from(TEXTS))
            return [*words[:position], path, *words[position + 1 :]], [path]
    if kind == "drop":
        position = draw(st.sampled_from(range(1, len(words))))
        return [*words[:position], *words[position + 1 :]], [words[position]]
    if kind == "unknown":
        word = draw(st.sampled_from(UNKNOWN))
        return [*words, word], [word]
    if kind == "twice":
        return [*words, *words[1:]], words[1:]
    option = draw(st.sampled_from([each for each in OPTIONS[verb] if each.names]))
    name = draw(st.sampled_from(option.names))
    if number_type(option) is bool:
        return [*words, name], [name]
    value = draw(values(option))
    if name == "--out":
        value = OUTSIDE.get(value, value.replace("W/", "C/"))
    return [*words, f"{name}={value}"], [name, value]


def values(option: Any) -> st.SearchStrategy[str]:
    """Sound and hostile values of an option, by its type and choices."""
    kind, choices = number_type(option), tuple(option.get_choices() or ())
    path = Path in (option.hint, *get_args(option.hint))
    if kind is int:
        return st.sampled_from(INTEGERS)
    if kind is float:
        return st.sampled_from(NUMBERS) | st.floats().map(repr)
    if option.field_info.name in PRIVATE:
        return st.sampled_from(SECRET_VALUES) | st.sampled_from((*choices, *TEXTS))
    if choices and not path:
        return st.sampled_from((*choices, *TEXTS)) | st.sampled_from(choices)
    if path or option.parameter.metavar in ("DATA", "MODEL", "DIR", "FILE", "RUN", "M", "PATH"):
        return st.sampled_from((*PATHS, *INPUTS)) | st.sampled_from(TEXTS[:12])
    return (
        st.sampled_from((*TEXTS, *INTEGERS))
        | st.sampled_from((*PATHS, *INPUTS))
        | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
    )


def _with_out(line: tuple[str, ...]) -> tuple[str, ...]:
    if "--out" in line or "--verify" in line:
        return line
    return (*line, "--out", "O/page.html" if line[0] == "report" else "O/new")


def _required(verb: str) -> tuple[str, ...]:
    """A line with the required arguments of a verb; it may be refused."""
    numbers = {int: "1", float: "0.5"}
    words = [verb]
    for option in OPTIONS[verb]:
        if not option.required:
            continue
        value = (*(option.get_choices() or ()), numbers.get(number_type(option), "W/before"))[0]
        if not option.field_info.is_positional:
            value = f"{option.name}={'O/new' if option.name == '--out' else value}"
        words.append(value)
    return tuple(words)
