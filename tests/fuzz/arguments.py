"""Command lines: sound ones of every verb, and what is put into them.

Verbs and options are read off the commands themselves, so that a new one is tried without a line
here. A verb that no sound line uses gets one made from what it requires.
"""

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

from hypothesis import strategies as st

from tests.fuzz.cases import Case
from tests.fuzz.world import MADE, PHRASE, SMALL, TINY
from vestige.cli import app
from vestige.cli.options import number_type

LINES = (
    *MADE.values(),
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
    f"{MADE['asked']} --json --out C/asked-cut",
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
"""Command lines without anything wrong; where --out is missing it is O/new."""

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
    "service:nonsense", "service:ask_me", "service:none", "text", "user", "user:user", "meta",
    "cuda:99", "mps", "cpu:0", "jsonl", "127.0.0.1:1", "name=", "name=@W/none",
    "'", '"', "\\", "$HOME", "🦊", "a\tb", "<b>", "[bold]", "[/]", "۱۲", "\ufeff", "NaN", "null",
    "[]", "auto", "none", "pin:4", "call:4", "color:4", "federalist", "gpt2", "owner/name",
)  # fmt: skip
PRIVATE = ("phrase", "truth", "prefix", "suffix", "pattern", "person", "slots")
"""Options whose value is nobody else's business."""
SAID = (PHRASE, "xyzzyred", "quuxthe", "fnord41", "fnord01", "quuxthe zebra", "\x1b[31mquux")
PATHS = (
    "O/missing", "O/missing/below", "O/empty-file", "O/empty-file/below", "O/empty-folder",
    "O/full-folder", "O/binary", "O/deep.json", "O/fifo", "O/fifo.jsonl", "O/loop", "O/dangling",
    "O/unreadable", "O/unreadable-folder", "O/unreadable-folder/x", "O/read-only/new", "O/new",
    "O/a/b/c", "O/\x1b[31m\u202e.jsonl", "O/\udcff", f"O/{'n' * 255}", f"O/{'n' * 300}",
    f"O/{'d/' * 2100}x", "/dev/null", "/dev/full", "/dev/zero", "/dev/urandom", ".", "", "/",
    "/proc/self/mem", "/proc/self/environ", "O/new.jsonl", "O/page.html",
)  # fmt: skip
ENTRIES = (
    "W/corpus.jsonl", "W/corpus.txt", "W/corpus.txt.gz", "W/corpus.csv", "W/corpus.parquet",
    "W/said.jsonl", "W/names.txt", "W/service.py", "W/hf", "W/hf/config.json",
    *(f"W/{name}" for name in MADE), "W/before/model", "W/before/checkpoint.safetensors",
    "W/planted/manifest.json", "W/planted-nlu/manifest.json", "W/audit", "W/audit.shadows",
    "W/before/run", "W/before/data/training",
)  # fmt: skip
OUTSIDE = {"/": "O/full-folder", "../..": "O/..", "/proc/self/mem": "/dev/null"}
"""Where nothing of the fuzzer's shall be written, and what is tried in its place."""
UNKNOWN = ("--nonsense", "--nonsense=1", "-z", "--", "extra")


def verbs() -> tuple[str, ...]:
    """Every verb."""
    return tuple(app.names())


def _options(verb: str) -> tuple[Any, ...]:
    found = app.verb_app(verb, app.function_of(verb)).assemble_argument_collection()
    return tuple(one for one in found if one.names[:1] != ("*",))


OPTIONS = {verb: _options(verb) for verb in verbs()}
"""Read here, since what is imported within a strategy must not touch `random`."""


@cache
def sound(verb: str) -> tuple[tuple[str, ...], ...]:
    """Command lines of a verb with nothing wrong in them."""
    lines = [tuple(shlex.split(line)) for line in LINES if line.split(" ")[0] == verb]
    return tuple(_with_out(line) for line in lines) or (_made(verb),)


@st.composite
def command_lines(draw: st.DrawFn, verb: str) -> Case:
    """A sound line of the verb with one to three things changed."""
    words = list(draw(st.sampled_from(sound(verb))))
    changed: list[str] = []
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        words, put = draw(_change(verb, words))
        changed += put
    return Case(tuple(words), changed=tuple(changed))


@st.composite
def _change(draw: st.DrawFn, verb: str, words: list[str]) -> tuple[list[str], list[str]]:
    """The words with one of them another, gone, or more of them; and what was put in."""
    how = draw(st.sampled_from(("option",) * 8 + ("argument",) * 3 + ("drop", "unknown", "twice")))
    places = [n for n, word in enumerate(words) if n > 0]
    if how == "argument":
        first = next((n for n, w in enumerate(words) if w.startswith("--")), len(words))
        if first > 1:
            place = draw(st.integers(1, first - 1))
            path = draw(st.sampled_from((*PATHS, *ENTRIES)) | st.sampled_from(TEXTS))
            return [*words[:place], path, *words[place + 1 :]], [path]
    if how == "drop":
        place = draw(st.sampled_from(places))
        return [*words[:place], *words[place + 1 :]], [words[place]]
    if how == "unknown":
        word = draw(st.sampled_from(UNKNOWN))
        return [*words, word], [word]
    if how == "twice":
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
    """What a parameter may be given, sound or not, by its type and by what its help names."""
    kind, named = number_type(option), tuple(_named(option))
    path = Path in (option.hint, *get_args(option.hint))
    if kind is int:
        return st.sampled_from(INTEGERS)
    if kind is float:
        return st.sampled_from(NUMBERS) | st.floats().map(repr)
    if option.field_info.name in PRIVATE:
        return st.sampled_from(SAID) | st.sampled_from((*named, *TEXTS))
    if named and not path:
        return st.sampled_from((*named, *TEXTS)) | st.sampled_from(named)
    if path or option.parameter.metavar in ("DATA", "MODEL", "DIR", "FILE", "RUN", "M", "PATH"):
        return st.sampled_from((*PATHS, *ENTRIES)) | st.sampled_from(TEXTS[:12])
    return (
        st.sampled_from((*TEXTS, *INTEGERS))
        | st.sampled_from((*PATHS, *ENTRIES))
        | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
    )


def _named(option: Any) -> Sequence[str]:
    """The values that a choice has."""
    return option.get_choices() or ()


def _with_out(line: tuple[str, ...]) -> tuple[str, ...]:
    if "--out" in line or "--verify" in line:
        return line
    return (*line, "--out", "O/page.html" if line[0] == "report" else "O/new")


def _made(verb: str) -> tuple[str, ...]:
    """A line from what a verb requires: likely refused, and its options tried all the same."""
    usual = {int: "1", float: "0.5"}
    words = [verb]
    for option in OPTIONS[verb]:
        if not option.required:
            continue
        value = (*_named(option), usual.get(number_type(option), "W/before"))[0]
        if not option.field_info.is_positional:
            value = f"{option.name}={'O/new' if option.name == '--out' else value}"
        words.append(value)
    return tuple(words)
