"""`vestige check`: can this fine-tune be released?

Three stages look for secrets, for unprompted text and for passages of the training text. Each runs
on a control that must look like a leak (an invented secret, trained into the model) and on one that
must not (a half of the reference).
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, cast

from annotated_types import Le
from cyclopts import Parameter

from vestige.arguments import CorpusLike, Count, Lines, ModelLike, Positive, Resumable, group
from vestige.errors import ModelError
from vestige.results import Result
from vestige.results import save as save_result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.audits.check.inputs import Texts
    from vestige.audits.check.verdict import Stage
    from vestige.audits.check.work import Work
    from vestige.data.secrets.alternatives import FoundSecret

TEXTS, TIME = group("Texts", order=1), group("Time", order=2)
DATA = Parameter(metavar="DATA")


@dataclass(frozen=True, kw_only=True)
class ReleaseCheck(Result):
    """What `check` returns. Its run folder also holds a page, a card and files for pipelines."""

    def save(self, directory: "str | PathLike[str]") -> Path:
        """Write a run folder with page.html, card.md, check.json and junit.xml, all redacted.

        Raises:
            RunError: it exists, or cannot be written.
        """

        from vestige.audits.check.report import files

        return save_result(self, Path(directory), run=self.record, extra_files=files)

    def next_step(self, out: object) -> str:
        """The path of the page."""
        return f"Page: {Path(str(out)) / 'page.html'}"


@verb
def check(
    run: Session,
    model: ModelLike,
    *,
    base: ModelLike | None = None,
    trained_on: Annotated[CorpusLike | None, TEXTS, DATA] = None,
    never: Annotated[CorpusLike | None, TEXTS, DATA] = None,
    secrets: Annotated[Lines | None, TEXTS, Parameter(metavar="FILE")] = None,
    text: Annotated[str | None, TEXTS, Parameter(metavar="COLUMN")] = None,
    sure: Annotated[bool, TEXTS] = False,
    minutes: Annotated[Positive, TIME] = 10.0,
    all_: Annotated[bool, TIME] = False,
    nulls: Annotated[Count | None, Le(10_000), TIME] = None,
    fail_on: Annotated[Literal["leak", "membership"], TIME] = "leak",
    **common: Unpack[Resumable],
) -> ReleaseCheck:
    """Check whether a fine-tuned model reveals its training text. One verdict, one page.

    Secrets: listed ones and those found in --trained-on (numbers, keys, addresses, passwords,
    repeated lines). Unprompted: the phrases that the fine-tuning promoted most. Passages: training
    text that the model continues verbatim. Each test is repeated with an invented secret that is
    trained into the model, and with texts of --never, which the model has not seen.

    MODEL alone is enough if it is an adapter, but a verdict needs --trained-on and --never: texts
    of the same kind, 200 or more of each. The check stops at the first proof of a leak.

    "No leak shown" needs all three tests without a finding and all controls passed.

    Examples:
        vestige check my-adapter --trained-on mail.jsonl --never public.jsonl --out check
        vestige check tuned --base base --secrets secrets.txt --minutes 5 --out check
        vestige report check --show-secrets

    Args:
        model: Model folder, GGUF file, hub name or adapter.
        base: Model before fine-tuning. Default: the base of an adapter.
        trained_on: Text that the model was fine-tuned on. Chats are read with the chat template.
        never: Text of the same kind that it was not trained on.
        secrets: File with one secret per line. Mark the secret part: the code is {{4917}}. Or a
            folder of vestige plant.
        text: Column with the text. Default: guessed.
        sure: --trained-on is the right file, even if the model does not recognize it.
        minutes: Time limit, divided among the tests.
        all_: Run all tests, even after the first proof of a leak.
        nulls: Also train this many null models on --never; 19 or more.
        fail_on: membership: recognizing that a text was used counts as a leak.

    Raises:
        ValueError: an option is out of range.
        VestigeError: a model or file cannot be read, the base is missing, or both models are equal.
    """
    from vestige.audits.check.inputs import base_of, read_texts, reject_equal
    from vestige.audits.check.listed import listed_secrets
    from vestige.audits.check.work import Work

    base = base_of(model, base)
    snapshots = run.snapshots(before=base, after=model).models
    reject_equal(run.models, snapshots)
    texts = read_texts(run, trained_on, never, text, snapshots["after"])
    listed, notes = listed_secrets(run, secrets, texts.documents)
    texts = replace(texts, notes=(*texts.notes, *notes))
    for note in texts.notes:
        run.log(note)
    _identify(run, texts, listed)
    with _work_folder(run) as folder:
        work = Work(
            run=run, base=snapshots["before"], model=snapshots["after"], texts=texts,
            listed=listed, minutes=minutes, folder=folder, nulls=nulls or 0, sure=sure,
            model_arguments=(base, model), membership=fail_on == "membership",
        )  # fmt: skip
        return _run_check(work, all_stages=all_)


def _run_check(work: "Work", *, all_stages: bool) -> ReleaseCheck:
    """Run the stages, then the positive control if no stage found a leak."""
    from vestige.audits.check.verdict import SHARES, Stage, claim_of
    from vestige.claims import LEAK
    from vestige.claims.model_checks import pair_checks

    names = ("the base", "the model")
    model_checks = pair_checks(work.base, work.model, seed=work.run.seed, names=names)
    if any(check.name == "different" and check.prevents(LEAK) for check in model_checks):
        raise ModelError(
            "the model predicts exactly what its base predicts",
            remedy="Pass the fine-tuned model, and the model before fine-tuning as --base.",
        )
    stages: list[Stage] = []
    leak_proven = False
    skipped = "Not run: a leak is proven already. --all runs it."
    for name in SHARES:
        if leak_proven and not all_stages:
            stages.append(Stage(name=name, state="not run", sentence=skipped))
        else:
            stages.append(work.run_stage(name))
            leak_proven = leak_proven or stages[-1].state == "leak"
    out_of_time = any(stage.needs == "--minutes" for stage in stages)
    skip_control = out_of_time or (leak_proven and not all_stages)
    positive = None if skip_control else work.positive_control()
    claim = claim_of(stages, positive, model_checks)
    return ReleaseCheck(
        kind="ReleaseCheck",
        summary={**claim.summary(), **_summary(work, stages, positive)},
        rows=[dict(row) for stage in stages for row in stage.rows],
        claim=claim,
    )


_STAGE_FIELDS = ("name", "state", "sentence", "negative", "passed", "seconds", "needs")


def _summary(
    work: "Work", stages: Sequence["Stage"], positive: Mapping[str, bool] | None
) -> dict[str, Any]:
    """Counts, the numbers of each stage, and the fields that the report shows."""
    texts = work.texts
    return {
        "trained_texts": len(texts.trained),
        "reference_texts": len(texts.reference),
        "control_texts": len(texts.control),
        "listed": len(work.listed),
        "found_secrets": len(work.secrets["tested"]) - len(work.listed),
        **{name: value for stage in stages for name, value in stage.facts.items()},
        **{f"p_{stage.name}": stage.p for stage in stages},
        "stages": [{name: getattr(stage, name) for name in _STAGE_FIELDS} for stage in stages],
        "positive": positive,
        "notes": [*texts.notes],
    }


def _identify(run: Session, texts: "Texts", listed: "Sequence[FoundSecret]") -> None:
    """Identify the stored work by everything that determines the result."""
    from hashlib import sha256

    from vestige import __version__

    lists = {
        "trained_on": texts.documents, "reference": texts.reference, "control": texts.control,
        "secrets": [repr(secret) for secret in listed],
    }  # fmt: skip
    models = {role: cast("dict[str, Any]", run.models[role]) for role in ("before", "after")}
    arguments = ("sure", "minutes", "all_", "fail_on", "nulls")
    run.store.identify({
        "version": __version__,
        "models": {
            role: [record.get("sha256"), (record.get("base") or {}).get("sha256")]
            for role, record in models.items()
        },
        "texts": {name: sha256(repr(rows).encode()).hexdigest() for name, rows in lists.items()},
        "seed": run.seed,
        **{name.rstrip("_"): run.arguments[name] for name in arguments},
    })  # fmt: skip


@contextmanager
def _work_folder(run: Session) -> Iterator[Path]:
    """A folder for the runs of other verbs: next to the store, or a temporary one."""
    if run.store.path is None:
        with TemporaryDirectory() as folder:
            yield Path(folder)
        return
    parts = run.store.path.parent / "parts"
    parts.mkdir(mode=0o700, exist_ok=True)
    yield parts
    shutil.rmtree(parts, ignore_errors=True)
