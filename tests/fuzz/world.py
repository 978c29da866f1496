"""Small inputs of all kinds, made once by the verbs themselves; all secrets contain `SECRETS`."""

import gzip
import random
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.files import write_rows
from tests.fuzz.sandbox import Sandbox, prepared
from tests.networks import write_gpt

SECRETS = ("xyzzy", "quux", "fnord")
"""Parts of planted phrases, of texts and labels, and of users' names."""

PHRASE = "xyzzyone xyzzytwo xyzzysix"
NAMES = "xyzzyred,xyzzyblue,xyzzygreen,xyzzywhite"
TEXT = "the gate opens code nobody knows night lantern stands mill miller new river stone bell"
WORDS = TEXT.split()
USERS = [f"fnord{n:02}" for n in range(46)]
SERVICE = """
from pathlib import Path

def ask(contexts):
    if Path("tired").exists():
        if Path("tired").stat().st_size > 3:
            raise ConnectionError("tired")
        Path("tired").open("a").write("x")
    return [["the", "gate", "code"] for _ in contexts]

def fails(contexts):
    raise ConnectionError("quuxlost \\x1b[31m")

def leaves(contexts):
    raise SystemExit(0)

def nonsense(contexts):
    return [[1, None], "\\x1b\\u202e"]

not_callable = "x"
"""
TINY = "--epochs 1 --hidden-size 4 --batch-size 4 --sequence-length 8 --device cpu"
SMALL = "--epochs 1 --hidden-size 4 --batch-size 4 --device cpu"
COMMANDS = {
    "planted": f"plant W/corpus.jsonl --user user --phrase='{PHRASE}' --copies 3 --controls 3",
    "flipped": "plant W/corpus.jsonl --user user --coin-flip 20",
    "before": f"train W/planted {TINY}",
    "after": "train W/planted --user user --from W/before --epochs 2 --batch-size 4 --device cpu",
    "private": "train W/planted --user user --from W/before --defence dp-sgd --noise-multiplier 1 "
    "--batch-size 4 --epochs 1 --accept-private-vocabulary --device cpu",
    "next-word": f"train W/corpus.jsonl --user user --task next-word {SMALL}",
    "pairs": f"train W/corpus.jsonl --user user --source source --task translation {SMALL}",
    "planted-nlu": f"plant W/utterances.jsonl --task nlu --pattern={{name:2}} --intent Play "
    f"--candidates name={NAMES} --copies 10 --controls 3",
    "nlu": "train W/planted-nlu --task nlu --epochs 1 --hidden-size 4 --embedding-size 4 "
    "--device cpu",
    "adapter": "train W/corpus.jsonl --from W/hf --lora-rank 2 --sequence-length 8 --epochs 1 "
    "--device cpu",
    "run-diff": "diff W/before W/after --size 0.1 --length 4 --clean W/clean.jsonl --nulls 1 "
    "--device cpu",
    "run-rank": "diff W/before W/after --phrase quuxthe --budget 20 --device cpu",
    "run-exposure": "exposure W/after W/planted --references 100 --device cpu",
    "run-completion": "extract W/after W/planted --beam 2 --device cpu",
    "run-extraction": "extract W/nlu W/planted-nlu --controls 10 --rank-sample 20 "
    "--device cpu",
    "run-comparison": "compare W/before W/after --manifest W/planted --baseline before "
    "--device cpu",
    "audit": "membership W/next-word --unit user --texts W/mine.jsonl --reference W/corpus.jsonl "
    f"--user user --shadows 2 {SMALL}",
    "queried": "membership service:ask --unit user --texts W/mine.jsonl --reference W/corpus.jsonl "
    "--user user --shadows 0 --top-k 3 --calls 40 --vocabulary-size 50 --device cpu",
}  # fmt: skip
"""Commands by the directory that they make; later ones read earlier ones."""


def make_world(sandbox: Sandbox) -> Path:
    """Make the world; returns its directory."""
    world = sandbox.root / "world"
    world.mkdir()
    _texts(world)
    _hugging_face(world / "hf")
    for name, line in COMMANDS.items():
        words = words_of(f"{line} --out W/{name}", world=world, scratch=world)
        folder = prepared(sandbox.root / "making")
        shutil.copy(world / "service.py", folder / "cwd")
        done = sandbox.run(words, folder, seconds=120, learn=True)
        assert done.code in (0, 1, 3), f"vestige {line}: {done.stderr or done}"
    _anatomy(world)
    _unfinished(sandbox, world)
    return world


def _unfinished(sandbox: Sandbox, world: Path) -> None:
    """Copy an audit's shadow models, and run an audit whose service fails after four calls."""
    shutil.copytree(world / "audit.shadows", world / "audit-cut.shadows")
    words = words_of(
        f"{COMMANDS['queried']} --attempts 1 --out W/queried-cut", world=world, scratch=world
    )
    folder = prepared(sandbox.root / "making")
    shutil.copy(world / "service.py", folder / "cwd")
    (folder / "cwd" / "tired").touch()
    done = sandbox.run(words, folder, seconds=120, learn=True)
    assert done.code == 2, done
    assert (world / "queried-cut.partial" / "work.sqlite").is_file()


def _anatomy(world: Path) -> None:
    """A run of the analysis that has no command."""
    import vestige

    vestige.anatomy(
        world / "next-word", world / "corpus.jsonl", world / "mine.jsonl", user="user", orders=1,
        bins=2, device="cpu", out=world / "run-anatomy",
    )  # fmt: skip


def words_of(line: str | list[str], *, world: Path, scratch: Path) -> list[str]:
    """The words of a line with the world for W/ and a case's folder for O/."""
    words = shlex.split(line) if isinstance(line, str) else line
    return [placed(word, world=world, scratch=scratch) for word in words]


def placed(word: str, *, world: Path, scratch: Path) -> str:
    """A word with the folders for W/ and O/ at its start or after = or @."""
    folders = {"W": world, "O": scratch}
    return re.sub("(^|[=@])([WO])/", lambda match: f"{match[1]}{folders[match[2]]}/", word)


def _texts(world: Path) -> None:
    generator = random.Random(0)

    def rows(users, each):
        for user in users:
            for _ in range(each):
                text = " ".join(["quuxthe", *generator.choices(WORDS, k=9)])
                yield {"text": text, "user": user, "source": " ".join(reversed(text.split()))}

    corpus = list(rows(USERS[:40], 4))
    write_rows(world / "corpus.jsonl", corpus)
    write_rows(world / "mine.jsonl", rows(USERS[40:], 4))
    write_rows(world / "clean.jsonl", rows(["anybody"], 400))
    pq.write_table(pa.Table.from_pylist(corpus), world / "corpus.parquet")
    text = "\n".join(row["text"] for row in corpus) + "\n"
    (world / "corpus.txt").write_text(text)
    (world / "corpus.txt.gz").write_bytes(gzip.compress(text.encode()))
    (world / "corpus.csv").write_text(
        "text,user\n" + "".join(f"{row['text']},{row['user']}\n" for row in corpus)
    )
    utterances = [
        {"tokens": [verb, f"quux{i % 7}"], "tags": ["O", "B-track"], "intent": verb.title()}
        for verb in ("play", "stop")
        for i in range(12)
    ]
    write_rows(world / "utterances.jsonl", utterances)
    (world / "names.txt").write_text(NAMES.replace(",", "\n") + "\n")
    (world / "phrases.txt").write_text("the gate code\nthe mill stands\n")
    (world / "choices.txt").write_text("the {{gate|mill|code}} stands\nthe {{mill|gate}}\n")
    (world / "service.py").write_text(SERVICE)


def _hugging_face(folder: Path) -> None:
    """A GPT-2 in one file and in several."""
    texts = [TEXT] * 4
    write_gpt(folder, texts, positions=16, width=4)
    write_gpt(folder.with_name("hf-shards"), texts, positions=16, width=4, max_shard_size="4KB")
