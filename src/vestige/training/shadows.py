"""Shadow models, trained once and reused.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Algorithm 1: each shadow learns the documents of half of the reference users
(see `shadow_jobs`). The folder of a shadow is named by a hash of everything that determines it,

    FOLDER/<digest>/        a training's directory, as the loop writes it
        model/              the shadow
        shadow.json         what determines it, its scores in and out, and its SHA-256

and `shadow.json` is written last: if it exists and its hash is right, nothing is trained. An
interrupted training resumes from its checkpoint, which is removed at the end. Remote training
(`train_shadow_away`) returns bytes, which `keep_shadow` writes; both give the same model.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
from pydantic import Field

from vestige.data.encoded import encode, encode_pairs
from vestige.data.files import Count, Measurements, Sha256, read_json
from vestige.data.writing import remove_stale_lock, replacing, wait_for_lock, write_text
from vestige.errors import TrainingError, VestigeError
from vestige.models import folders
from vestige.models.folders import fingerprint
from vestige.models.protocols import Network
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.training.directory import CHECKPOINT, IDENTITY, MODEL
from vestige.training.evaluate import Evaluation
from vestige.training.loop import learn
from vestige.training.new_models import new_model, new_seq2seq
from vestige.training.shadow_jobs import ShadowJob
from vestige.training.tasks import PairTask, TextTask
from vestige.training.word_frequencies import FREQUENCIES, frequency_perplexity, is_useless

RECORD = "shadow.json"
_AFRESH = "Remove that folder to train the shadow model again."


class _Scores(Measurements):
    """Schema of an `Evaluation`."""

    perplexity: Annotated[float, Field(ge=1)]
    accuracy: Annotated[float, Field(ge=0, le=1)]
    tokens: Count
    measures: dict[str, float | None]


class _Record(Measurements):
    """Schema of a finished shadow's record."""

    shadow: dict[str, Any]
    inside: _Scores
    outside: _Scores
    sha256: Sha256


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """A finished shadow model.

    Attributes:
        directory: its folder; `load_model` reads it.
        members: users whose documents it learned.
        others: users whose documents it did not.
        inside: scores on members' documents.
        outside: scores on non-members' documents.
        sha256: of its weights, see `models.folders.fingerprint`.
    """

    directory: Path
    members: tuple[str, ...]
    others: tuple[str, ...]
    inside: Evaluation
    outside: Evaluation
    sha256: str

    @property
    def useless(self) -> bool:
        """Whether it predicts non-members' documents no better than word frequencies."""
        return is_useless(self.outside.perplexity, self.outside.measures.get(FREQUENCIES))


def train_shadows(
    jobs: Iterable[ShadowJob],
    *,
    train: Callable[[ShadowJob], Any] | None = None,
    map_fn: Callable[..., Iterable[Shadow]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> list[Shadow]:
    """Train all shadows that are unfinished or damaged.

    Args:
        jobs: of the shadows.
        train: function for one job; default: `train_shadow`. On nodes without a shared disk:
            `train_shadow_away`, with a `map_fn` that ends in `keep_shadow`.
        map_fn: `map`, or a parallel one that returns `Shadow`s in the order of the jobs.
        say: called with a line for each trained shadow.
    """
    jobs = list(jobs)
    shadows = {job.digest: _sound(job, say) for job in jobs}
    for job in jobs:
        if shadows[job.digest] is not None:
            remove_stale_lock(job.lock)
    missing = list({job.digest: job for job in jobs if shadows[job.digest] is None}.values())
    results = map_fn(train or train_shadow, missing)
    for done, (job, trained) in enumerate(zip(missing, results, strict=True), 1):
        shadows[job.digest] = trained
        say(f"trained shadow model {job.digest} ({done} of {len(missing)})")
    return [shadow for job in jobs if (shadow := shadows[job.digest]) is not None]


def train_shadow(job: ShadowJob) -> Shadow:
    """Train or resume a shadow in its folder, or read it if finished.

    Another process that needs the same shadow waits and then reads it. The training uses one
    thread, so that the bits do not depend on the machine. DataError if half of the users have no
    text.
    """
    return _once(job, lambda: _learn(job))


def train_shadow_away(job: ShadowJob) -> dict[str, bytes]:
    """Train a shadow in a temporary folder; returns its files by name."""
    with TemporaryDirectory() as folder:
        directory = train_shadow(replace(job, folder=Path(folder))).directory
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def keep_shadow(job: ShadowJob, files: Mapping[str, bytes]) -> Shadow:
    """Write the files of a remotely trained shadow to its folder, unless it is finished."""
    return _once(job, lambda: _unpack(job.directory, files))


def finished(job: ShadowJob) -> Shadow | None:
    """The shadow in a job's folder, None if unfinished; TrainingError if it was changed since."""
    path = job.directory / RECORD
    if not path.is_file():
        return None
    found = read_json(path, _Record, error=TrainingError, remedy=_AFRESH, finite=False)
    if found.shadow != json.loads(json.dumps(job.identity)):
        raise _changed(job, f"{RECORD} describes another shadow model")
    if not (job.directory / MODEL).is_dir():
        raise _changed(job, "the model is missing")
    if fingerprint(job.directory) != found.sha256:
        raise _changed(job, f"the weights do not have the SHA-256 in {RECORD}")
    return Shadow(
        directory=job.directory,
        members=job.members,
        others=job.others,
        inside=Evaluation(**found.inside.model_dump()),
        outside=Evaluation(**found.outside.model_dump()),
        sha256=found.sha256,
    )


def _sound(job: ShadowJob, say: Callable[[str], None] = lambda line: None) -> Shadow | None:
    """Finished shadow of a job, or None if missing or damaged."""
    try:
        return finished(job)
    except VestigeError as error:
        say(f"{error.problem}: training it again")
        return None


def _once(job: ShadowJob, fill: Callable[[], None]) -> Shadow:
    """The finished shadow; if missing, `fill` its folder. A damaged one is moved aside."""
    with wait_for_lock(job.lock):
        shadow = _sound(job)
        if shadow is None:
            if (job.directory / RECORD).exists():
                aside = job.directory.with_name(f".{job.digest}.damaged")
                shutil.rmtree(aside, ignore_errors=True)
                job.directory.replace(aside)
            fill()
            (job.directory / CHECKPOINT).unlink(missing_ok=True)
            shadow = finished(job)
    return _there(job, shadow)


def _learn(job: ShadowJob) -> None:
    """Train a shadow, and record its scores on members' and non-members' documents."""
    config = job.training
    with _one_thread():
        model, task, inside, outside = _task(job)
        model.to(job.device)
        learn(model, task(inside, None), config=config, directory=job.directory, resume=True)
        inside_scores, outside_scores = (
            task(inside, part).judge(model, config) for part in (inside, outside)
        )
        member_text, other_text = (getattr(part, "targets", part) for part in (inside, outside))
        by_frequencies = frequency_perplexity(member_text, other_text, size=len(job.vocabulary))
    measures = {**outside_scores.measures, FREQUENCIES: by_frequencies}
    record = {
        "shadow": job.identity,
        "inside": asdict(inside_scores),
        "outside": asdict(replace(outside_scores, measures=measures)),
        "sha256": fingerprint(job.directory),
    }
    write_text(job.directory / RECORD, json.dumps(record, indent=2) + "\n")


def _task(job: ShadowJob) -> tuple[Network, Callable[..., Any], Any, Any]:
    """Fresh model, training task, and documents in and out, by the job's task."""
    seed, source = job.training.seed, job.source_vocabulary
    if isinstance(job.model, Seq2SeqConfig):
        assert source is not None
        members, others = (encode_pairs(part, source, job.vocabulary) for part in job.parts())
        model = new_seq2seq(source, job.vocabulary, job.model, seed=seed)
        return model, PairTask, members, others
    inside, outside = (encode(part, job.vocabulary) for part in job.parts())
    return new_model(job.vocabulary, job.model, seed=seed), TextTask, inside, outside


def _unpack(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files, the record last."""
    model = [name for name in files if name.startswith(f"{MODEL}/")]
    outer = [name for name in files if name not in model]
    unexpected = [name for name in outer if Path(name).name != name]
    unexpected += [name for name in model if ".." in Path(name).parts]
    if unexpected or RECORD not in outer or not model:
        raise TrainingError(
            f"The returned files are not those of a shadow model: {unexpected or sorted(files)}",
            remedy="Train it again, on nodes with the same version of Vestige.",
        )
    # The identity comes first, as the loop has it, and the record last.
    for name in sorted(outer, key=lambda name: (name == RECORD, name != IDENTITY)):
        if name == RECORD:
            with folders.replacing(directory / MODEL) as fresh:
                for inner in model:
                    path = fresh / Path(inner).relative_to(MODEL)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(files[inner])
        with replacing(directory / name) as file:
            file.write(files[name])


def _there(job: ShadowJob, shadow: Shadow | None) -> Shadow:
    if shadow is None:
        raise _changed(job, f"{RECORD} vanished while it was being written")
    return shadow


def _changed(job: ShadowJob, what: str) -> TrainingError:
    return TrainingError(
        f"{job.directory} does not have the shadow model trained there: {what}",
        remedy=_AFRESH,
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
