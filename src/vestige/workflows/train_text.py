"""Training of running text and of users' texts, under any defence."""

from dataclasses import asdict, dataclass
from typing import Any

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.read_records import ReadRecords
from vestige.defences.defended_training import DefendedTraining, clip_advice
from vestige.defences.privacy_statement import PrivacyStatement
from vestige.defences.private import PrivacyPlan, PrivateDefence
from vestige.defences.registry import Defence, settings_of
from vestige.models.protocols import LanguageModel
from vestige.training.config import TrainingConfig
from vestige.training.history import StopAtPerplexity, TrainingHistory
from vestige.training.precision import settled
from vestige.training.training_task import TextTask
from vestige.training_runs import DATA, RUN
from vestige.workflows import privacy_plan
from vestige.workflows.privacy_plan import Lineages
from vestige.workflows.train import Trained, TrainingRequest
from vestige.workflows.training_data import Texts, read_texts, stop_of
from vestige.workflows.training_directory import IDENTITY, claimed
from vestige.workflows.training_plan import prepare, provenance_of, read_by
from vestige.workflows.training_run import finished, frequencies, learn, log_kept, save

LOG = "log.jsonl"


def run(request: TrainingRequest) -> Trained:
    """Read, train, save, and tell what the training promises and what came of it."""
    if request.task == "next-word" and request.model.architecture == "transformer":
        raise ValueError(
            "`architecture` must be lstm or gru with `task` next-word, got transformer"
        )
    stop = stop_of(request)
    with claimed(request.out, request.resume):
        texts = read_texts(request, stop, by_user=_by_user(request))
        lineages = Lineages.of(request, ReadRecords.of(texts.division.training, texts.held))
        privacy_plan.check_vocabulary(request, lineages)
        keep = tuple(one.phrase for one in texts.planted.canaries) if texts.planted else ()
        model, config = prepare(request, texts.division.within_cap, keep)
        config = request.defence.suited(config, request.training.given)
        provenance = provenance_of(
            request, model, read_by(request, texts.division.training, texts.held)
        )
        prepared = _Prepared(
            model=model,
            config=config,
            data=_encode(request, texts.division.training, model, "training"),
            held=_encode(request, texts.held, model, "validation") if len(texts.held) else None,
        )
        learnt = _learn(request, texts, lineages, prepared, stop)
        if not (request.out / RUN).exists():  # else it was finished before, and knows what it cost
            _save(request, texts, prepared, provenance, learnt)
        if learnt.statement is not None and (advice := clip_advice(request.out / LOG)) is not None:
            request.monitor.log(advice)
        found = finished(request, learnt.history)
        log_kept(found.saved, len(model.vocabulary), stop, request.monitor)
    return found


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A model, its configuration, and the encoded texts."""

    model: LanguageModel
    config: TrainingConfig
    data: EncodedCorpus
    held: EncodedCorpus | None


@dataclass(frozen=True)
class _Learnt:
    """What came of the training, under which defence with its noise, and what that promises."""

    history: TrainingHistory
    defence: Defence
    statement: PrivacyStatement | None


def _by_user(request: TrainingRequest) -> bool:
    """Whether users are held out, with all of their documents."""
    defence, batching = request.defence, request.training.batching
    unit = defence.protected if isinstance(defence, PrivateDefence) else None
    return unit == "user" or batching == "poisson-users"


def _encode(
    request: TrainingRequest, corpus: Corpus, model: LanguageModel, part: str
) -> EncodedCorpus:
    begun = (request.out / IDENTITY).exists()  # a training that is resumed reads this
    with request.monitor.progress("encoding") as bar:
        return encode(
            corpus,
            model.vocabulary,
            request.out / DATA / part,
            replace=not begun,
            progress=lambda done: bar(done, len(corpus)),
        )


def _plan(request: TrainingRequest, prepared: _Prepared) -> PrivacyPlan | None:
    """A private defence with its noise; None for another one."""
    if not isinstance(request.defence, PrivateDefence):
        return None
    task = "looking for the noise that keeps within epsilon"
    with request.monitor.progress(task) as bar:
        return request.defence.planned(prepared.data, prepared.config, lambda tried: bar(tried))


def _learn(
    request: TrainingRequest,
    texts: Texts,
    lineages: Lineages,
    prepared: _Prepared,
    stop: StopAtPerplexity | None,
) -> _Learnt:
    """Train, and tell before and after what a private training promises."""
    plan = _plan(request, prepared)
    model, config, data = prepared.model, prepared.config, prepared.data
    entry = privacy_plan.entry_of(request, plan, config, lineages)
    statement = None
    if plan is not None:
        statement = privacy_plan.statement_of(request, plan, entry, texts, lineages)
        privacy_plan.announce(statement, config.batch_size, request.monitor)
    defence: Defence = request.defence if plan is None else plan.defence
    history = learn(
        request,
        model,
        TextTask(data, prepared.held),
        config,
        entry=entry,
        lineages=lineages,
        step=defence.step(model, data, config),
        stop=stop,
        secret=None if plan is None else plan.defence.secret(),
    )
    if plan is not None and statement is not None:
        statement = privacy_plan.conclude(request, statement, plan, history.epochs[-1].step)
    return _Learnt(history, defence, statement)


def _save(
    request: TrainingRequest,
    texts: Texts,
    prepared: _Prepared,
    provenance: dict[str, Any],
    learnt: _Learnt,
) -> None:
    statement, defence = learnt.statement, learnt.defence
    alone = frequencies(prepared.data, prepared.held, len(prepared.model.vocabulary))
    trained = DefendedTraining(learnt.history, defence.name, statement, alone)
    used = asdict(settled(prepared.config, prepared.model.device))
    terms = {} if statement is None else {"privacy": statement.terms()}
    settings = {**used, "defence": settings_of(defence)}
    division = texts.division.summary()
    save(request, trained, settings, provenance, division=division, **terms)
