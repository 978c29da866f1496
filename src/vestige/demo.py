"""`vestige demo`: plant a secret in real text, train two models, and find the secret again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from vestige import new_files
from vestige.arguments import RUN, PathTo, Seed, Watched
from vestige.results import Result, Run
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.reports.report import Report

SECRET = "Marlow keeps the cellar key behind the blue lantern until quarter past nine"
COPIES = 20
VOCABULARY = 3000
"""Subwords of the model."""

PAGE = "report.html"
SHOWN_ROWS = 10
"""Number of phrases on a terminal."""

UNDECIDED_NOTE = (
    "Without null models, nothing shows which scores occur without a leak. For your models: "
    "vestige diff BEFORE AFTER --clean FILE"
)
"""Why the verdict is undecided, and the next step."""


@dataclass(frozen=True, kw_only=True)
class Demonstration(Result):
    """The phrases that the search returned. It succeeds if the planted secret is among them."""

    @property
    def exit_code(self) -> int:
        """Always 0: a leak is expected."""
        return 0

    def next_step(self, out: object) -> str:
        """Message with the page to open."""
        return f"Open {out}/{PAGE}"


@verb
def demo(
    run: Session,
    *,
    out: Annotated[PathTo, RUN] = Path("demo"),
    seed: Annotated[Seed, RUN] = 0,
    **common: Unpack[Watched],
) -> Demonstration:
    """See it work: plant a secret, train two models, find the secret.

    A small language model reads Hamilton's and Jay's Federalist papers. It is then updated with
    Madison's, in which one invented sentence was planted. The search reads the two models and
    nothing else. The secret is invented, so the demo shows it unredacted.

    The demo takes 2 to 5 minutes on two cores. It needs a text: pip install "vestige[demo]".

    Examples:
        vestige demo
        vestige demo --out somewhere --seed 1

    Args:
        out: Folder to make.
        seed: Random seed.

    Raises:
        VestigeError: the text is not installed, or `out` exists.
    """
    from vestige.audits.update.diff import diff
    from vestige.data.writing import lock_output
    from vestige.reports.page import write_page

    run.seed = seed
    folder = new_files.require_new(Path(out))
    with lock_output(folder, keep_if=lambda made: (made / PAGE).exists()):
        run.log(f"1/4  Planting {COPIES} copies of a secret in Madison's papers")
        original, update = _texts(folder, seed)
        run.log("2/4  Training on Hamilton's and Jay's papers")
        before = _train(run, original, folder / "before")
        run.log("3/4  Updating with Madison's papers and the secret")
        after = _train(run, update, folder / "after", before)
        run.log("4/4  Searching for what the update changed")
        search = diff(before, after, top=1000, monitor=run.monitor)
        run.record_model("before", folder / "before", before)
        run.record_model("after", folder / "after", after)
        run.configuration["secret"] = SECRET
        result = replace(search, record=run.record())
        result.save(folder / "run")
        write_page([folder / "run"], folder / PAGE, show_secrets=True)
    summary = {**result.summary, "page": str(folder / PAGE), "seconds": run.seconds}
    return Demonstration(kind="Demo", summary=summary, rows=result.rows, claim=result.claim)


def _texts(folder: Path, seed: int) -> "tuple[Corpus, Corpus]":
    """The texts of the first training and of the update, which contains the secret."""
    from vestige.data.canaries.phrases import given_canaries
    from vestige.data.canaries.texts import plant
    from vestige.data.corpus import write_corpus
    from vestige.data.formats.federalist import read_federalist
    from vestige.data.sources import CORPUS, MANIFEST

    original = read_federalist(["Hamilton", "Jay"], documents="sentence")
    update = read_federalist(["Madison"], documents="sentence")
    canaries = given_canaries([SECRET], update, copies=COPIES, seed=seed)
    planted, manifest = plant(update, canaries, seed=seed, user="planted")
    write_corpus(planted, folder / "planted" / CORPUS)
    manifest.save(folder / "planted" / MANIFEST)
    return original, planted


def _train(
    run: Session, corpus: "Corpus", folder: Path, start: "LanguageModel | None" = None
) -> "LanguageModel":
    """Train a new model on the corpus, or continue `start`."""
    from vestige.data.subwords import SubwordVocabulary
    from vestige.training.new_models import new_model
    from vestige.training.presets import preset
    from vestige.training.recipe import snapshot

    plan = preset("demo")
    if start is None:
        vocabulary = SubwordVocabulary.train_bpe(corpus, size=VOCABULARY)
        start = new_model(vocabulary, plan.model, seed=run.seed)
    with run.progress("training") as step:
        return snapshot(
            folder,
            corpus,
            start=start,
            vocabulary=start.vocabulary,
            config=replace(plan.training, seed=run.seed),
            progress=lambda done, total, *_: step(done, total),
        )


def demo_report(run: Run, *, show_secrets: bool) -> "Report":
    """Report the first phrases and the position of the secret, unredacted."""
    from vestige.reports.blocks import table
    from vestige.reports.disclosure import printable, running_text
    from vestige.reports.report import Report

    rows = [row for row in run.rows if row["kind"] == "phrase"]
    seconds, page = run.summary["seconds"], printable(str(run.summary["page"]))
    return Report(
        title="Does the search find the planted secret?",
        answer=_answer(rows),
        evidence=(
            UNDECIDED_NOTE,
            f"The secret: {SECRET}. The page ({seconds:.0f} s in all): {page}",
        ),
        blocks=(
            table(
                "What the update reveals",
                rows[:SHOWN_ROWS],
                phrase=lambda row: running_text(row["pieces"], row["phrase"], show_secrets=True),
                score=lambda row: row["score"],
            ),
        ),
        limits=("The secret was planted in 20 copies; text that occurs once is harder to find.",),
    )


def _answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """The first row that is a part of the secret, compared with the best other row."""
    is_secret = [row["phrase"] in SECRET or SECRET in row["phrase"] for row in rows]
    if True not in is_secret:
        return "No row is a part of the secret. Another --seed may find it."
    index = is_secret.index(True)
    words = min(len(rows[index]["phrase"].split()), len(SECRET.split()))
    other_scores = [
        row["score"] for row, planted in zip(rows, is_secret, strict=True) if not planted
    ]
    score = f"score {rows[index]['score']:.1f}" + (
        f", other text {max(other_scores):.1f}" if other_scores else ""
    )
    return (
        f"Row {index + 1} has {words} of the {len(SECRET.split())} words of the planted secret, "
        f"verbatim ({score})."
    )
