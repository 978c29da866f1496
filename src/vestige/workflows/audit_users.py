"""Membership audit of users: p-values for texts that may have been in the training data."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, TypeAlias

from annotated_types import Ge

from vestige import _validate
from vestige.attacks.membership.query_policy import QueryPolicy, Selection, usual_selection
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.audit_options import ServiceSettings, ShadowSettings, TextSettings
from vestige.workflows.options import (
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    Flag,
    Group,
    Limit,
    Metavar,
    ModelLike,
    Seed,
    SourceColumn,
    TextColumn,
    UserColumn,
)

if TYPE_CHECKING:
    from vestige.attacks.membership.user_audit import UserAudit
    from vestige.models.endpoint_address import EndpointAddress
    from vestige.models.service import Ask
    from vestige.models.top_k import TopK
    from vestige.workflows.audit_inputs import AuditInputs
    from vestige.workflows.audit_run import Audit
    from vestige.workflows.audit_target import Served
    from vestige.workflows.audit_with_base import BaseAudit

    Target: TypeAlias = ModelLike | Ask | TopK | EndpointAddress
else:
    Target = str
    """What a command line can give."""

WHO = Group("Whose text")
QUERIES = Group("Queries")


def audit_users(
    model: Target,
    texts: Annotated[CorpusLike, Flag("--texts"), Metavar("DATA")],
    *,
    reference: Annotated[CorpusLike, Metavar("DATA")],
    base: Annotated[ModelLike | None, Metavar("MODEL")] = None,
    out: Directory | None = None,
    person: Annotated[str | None, Metavar("NAME"), WHO] = None,
    artificial: Annotated[int | None, Ge(2), WHO] = None,
    top_k: Annotated[int | None, Ge(1), QUERIES] = None,
    queries: Annotated[int | None, Ge(1), QUERIES] = None,
    calls: Annotated[int | None, Ge(1), QUERIES] = None,
    select: Annotated[Selection | None, QUERIES] = None,
    rate: Annotated[float, QUERIES] = 0.05,
    service: ServiceSettings = ServiceSettings(),
    shadow_models: ShadowSettings = ShadowSettings(),
    format: DataFormat = "auto",
    text: TextColumn = "text",
    user: UserColumn = None,
    source: SourceColumn = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    show_secrets: bool = False,
    monitor: Monitor = SILENT,
) -> "UserAudit":
    """Say whose text a model was trained on, with a p-value for everybody.

    The model is asked for the next word, again and again, along the texts. Whose text it has
    learnt, for them it ranks the true words higher than could be expected, and higher than for
    non-members, people who are known not to be in its training data: the p-value is how often one
    of these does as well, with as much text. What to expect is learnt from some of them, and from
    shadow models, which this verb trains on their text. 37 people or more are needed for a p-value
    of 0.05, a hundred are better; their texts must be of the same kind and time as those that are
    audited, or the verdict is undecided. A p-value that is not small does not show that somebody
    was out.

    A fine-tuned language model is audited with the model that it was fine-tuned from, `base`,
    which takes the place of shadow models: what a user's text gained over the base is compared with
    what it gained for non-members, also where MODEL shows only some of its most probable tokens
    (`top_k`). 19 people are enough then.

    The verdict is about all audited users together: a permutation test of users and the smallest
    p-values share one level, and users are flagged only where it is significant. Near-duplicates
    count once. "No leak shown" needs enough users to detect an AUC of 0.75 with 80% power, about 15
    beside 48; for one person the verdict is "leak" or "undecided".

    For a person, `texts` is a file of their own texts, and MODEL often a service: a server that
    speaks OpenAI's protocol, or a Python function that asks something else. What it costs is told
    before the first call, everything that it says is kept in DIR, and counted: give `budget`, and
    `queries` or `calls` to ask about less. For an owner, `texts` holds all users (`user`
    names the column), and `rate` bounds the share of mistakes among those that are flagged.

    An audit that was interrupted goes on when the same command is given again; no model is
    trained twice and nothing is asked twice. Another audit takes trained shadow models from
    `shadow_dir`. DIR holds texts and users' names in the clear.

    Args:
        model: A model or training directory, a Hugging Face model, openai:URL#MODEL, which is a
            model behind a server with completions or chat, or package.module:function, which takes a list of contexts, each with words and a source, and gives for each the likeliest
            next words, the likeliest first.
        texts: What may have been trained on.
        reference: Texts of people who are known not to be in the training data, of the same kind.
        base: The model that MODEL was fine-tuned from.
        out: A directory to make. The same command goes on where it was interrupted.
        person: All of `texts` is this person's. Default: `me`, where nothing says whose they are.
        artificial: Split `reference` at random into so many users, where nothing says whose it is.
        top_k: How many of the likeliest words are shown. Default: all; a service needs it.
        queries: Ask about so many texts of each user, every word of them.
        calls: Ask about so many single words of each user.
        select: Which ones: at `random`, the `rare` (by mean frequency; `rare-sum` is the paper's),
            or the `informative`, where knowing the text could bring a word into view. Default:
            `informative` for `calls` with shadow models, else `random`; without `queries` or
            `calls` `all`.
        rate: Share of the flagged users that may be expected to be non-members, and level of the
            verdict.
        show_secrets: Show users' names; else each is a block.

    Returns:
        The audited users with their p-values; without `out` nothing of the audit is kept.

    Raises:
        ValueError: settings contradict each other.
        VestigeError: something cannot be read, users or words are too few, or the service fails.

    Examples:
        vestige audit-users trained --texts mine.jsonl --reference others.jsonl --user author --out audit

        vestige report audit/run --out page.html

        vestige audit-users fine-tuned --base base --texts mine.jsonl --reference others.jsonl --user author --top-k 20 --out beside-base

        vestige audit-users my_service:ask --texts mine.jsonl --reference others.jsonl --user author --top-k 5 --calls 100 --budget 12000 --timeout 30 --out audit

        vestige audit-users openai:http://localhost:8000/v1#smollm2 --texts mine.jsonl --reference others.jsonl --user author --top-k 5 --calls 100 --budget 12000 --out served

        vestige audit-users trained --texts users.jsonl --reference held-out.jsonl --user author --processes 4 --out before-release

        vestige audit-users trained --texts users.jsonl --reference held-out.jsonl --user author --top-k 50 --shadow-dir before-release/shadows --out shown-50
    """  # noqa: E501
    call = Call.of(audit_users, locals())
    from vestige.workflows.audit_directory import check_out
    from vestige.workflows.audit_target import find_service

    ask = find_service(model)
    _check_service(ask, service)
    if ask is not None and base is not None:
        raise ValueError("`base` must be left out for a service: it is for a model of ours")
    shadows = shadow_models.shadows if base is None else 0
    how = select or usual_selection(queries=queries, calls=calls, shadows=shadows)
    # Checked here without the number of words, which the model has yet to tell.
    policy = QueryPolicy(how=how, queries=queries, calls=calls, k=top_k or 0, seed=seed)
    if base is None:
        _check(policy, shadow_models, rate, is_service=ask is not None)
    else:
        _validate.open_fraction(**{"`rate`": rate})
    with ExitStack() as stack:
        place = Path(out or stack.enter_context(TemporaryDirectory()))
        check_out(place)
        if base is not None:
            return _finished(call, _beside_base(call, policy, place, monitor))
        inputs = _open(call, ask, monitor)
        audit = _prepared(call, inputs, policy, place, monitor)
        return _finished(call, audit)


def _check_service(ask: "Served | None", service: ServiceSettings) -> None:
    """Refuse settings of a service that the target does not have."""
    from vestige.models.endpoint_address import EndpointAddress

    if ask is None:
        service.refuse_for_model()
    elif isinstance(ask, EndpointAddress):
        service.refuse_for_endpoint()
    else:
        service.refuse_for_callable()


def _check(
    policy: QueryPolicy, shadow_models: ShadowSettings, rate: float, *, is_service: bool
) -> None:
    """Refuse settings that contradict each other, before anything is read."""
    _validate.open_fraction(**{"`rate`": rate})
    if policy.how == "informative" and not shadow_models.shadows:
        raise ValueError(
            "`select` informative must come with shadow models, which tell what is "
            "informative, got `shadows` 0"
        )
    if is_service and not policy.k:
        raise ValueError(
            "`top_k` must be given for a service: how many words does it list at most?"
        )


def _open(call: Call, ask: "Served | None", monitor: Monitor) -> "AuditInputs":
    """The target and the texts, encoded; a service's words are those of some non-members."""
    from vestige.training_runs import useless_model
    from vestige.workflows.audit_inputs import AuditInputs, read_texts
    from vestige.workflows.audit_target import open_target, service_name, service_target

    given = call.arguments
    model = given["model"]
    texts = ("format", "text", "user", "source", "limit", "person", "artificial", "seed")
    settings = TextSettings(**call.chosen(*texts))
    if ask is None:
        if warning := useless_model(model):
            monitor.log(warning)
        target = open_target(model, device=given["device"])
    parts = read_texts(
        given["texts"], given["reference"], settings,
        show_secrets=given["show_secrets"], monitor=monitor,
    )  # fmt: skip
    if ask is not None:
        parts = parts.sourced(given["service"].task not in (None, "next-word"))
        counted, _, _ = parts.groups(seed=settings.seed)
        name, reference = service_name(model, ask), parts.reference_of(counted)
        target = service_target(ask, reference, given["service"], name=name)
    else:
        parts = parts.sourced(target.task != "next-word")
    return AuditInputs.of(target, parts, seed=settings.seed)


def _beside_base(call: Call, policy: QueryPolicy, out: Path, monitor: Monitor) -> "BaseAudit":
    """The audit with a base, checked: nothing has been asked."""
    from dataclasses import replace

    from vestige.workflows.audit_inputs import AuditInputs, read_texts
    from vestige.workflows.audit_with_base import BaseAudit, refuse_shadows, target_beside_base
    from vestige.workflows.text_models import TextModels

    given = call.arguments
    refuse_shadows(given["shadow_models"], policy)
    texts = ("format", "text", "user", "source", "limit", "person", "artificial", "seed")
    parts = read_texts(
        given["texts"], given["reference"], TextSettings(**call.chosen(*texts)),
        show_secrets=given["show_secrets"], monitor=monitor,
    ).sourced(False)  # fmt: skip
    models = TextModels.read(given["model"], given["base"], device=given["device"], monitor=monitor)
    target = target_beside_base(given["model"], models)
    if policy.k > target.vocab_size:
        raise ValueError(f"`top_k` must lie in [1, {target.vocab_size}], got {policy.k}")
    policy = replace(policy, k=policy.k or target.vocab_size)
    inputs = AuditInputs.of(target, parts, seed=policy.seed, together=True)
    inputs.check(policy, given["rate"])
    return BaseAudit(
        inputs=inputs, models=models, policy=policy, rate=given["rate"], out=out, monitor=monitor
    )


def _prepared(
    call: Call, inputs: "AuditInputs", policy: QueryPolicy, out: Path, monitor: Monitor
) -> "Audit":
    """The audit, checked: nothing has been trained or queried."""
    from dataclasses import replace

    from vestige.workflows.audit_directory import ANSWERS, SHADOWS
    from vestige.workflows.audit_run import Audit
    from vestige.workflows.audit_service import Service
    from vestige.workflows.audit_shadows import plan_shadows

    given, target, asked = call.arguments, inputs.target, None
    rate, device, shadow_models = given["rate"], given["device"], given["shadow_models"]
    if target.ask is None and policy.k > target.vocab_size:
        raise ValueError(f"`top_k` must lie in [1, {target.vocab_size}], got {policy.k}")
    policy = replace(policy, k=policy.k or target.vocab_size)
    if target.ask is not None:
        asked = Service(
            inputs=inputs, policy=policy, settings=given["service"], answers=out / ANSWERS,
            show_secrets=given["show_secrets"], monitor=monitor,
        )  # fmt: skip
    inputs.check(policy, rate)
    audit = Audit(
        inputs=inputs, policy=policy, rate=rate, settings=shadow_models, service=asked, out=out,
        plan=plan_shadows(
            shadow_models, target, seed=policy.seed, device=device, monitor=monitor
        ),
        shadow_dir=Path(shadow_models.shadow_dir or out / SHADOWS), device=device, monitor=monitor,
    )  # fmt: skip
    audit.check_budget()
    return audit


def _finished(call: Call, audit: "Audit | BaseAudit") -> "UserAudit":
    """The result: of the directory where it is there, else of a run, which is saved."""
    from vestige import results
    from vestige.models.provenance import of_corpus
    from vestige.workflows.audit_directory import RUN, claimed, finished_audit

    with claimed(audit.out, audit.identity):
        if (audit.out / RUN).exists():
            audit.monitor.log(f"{audit.out} holds this audit, finished: nothing is done again")
            return finished_audit(audit.out)
        parts = audit.inputs.parts
        found = call.record(
            audit.run(),
            configuration=audit.identity["settings"],
            seed=audit.policy.seed,
            models=audit.recorded,
            data={
                "texts": of_corpus(call.arguments["texts"], parts.texts),
                "reference": of_corpus(call.arguments["reference"], parts.reference),
            },
        )
        if call.arguments["out"] is not None:
            results.save(found, audit.out / RUN, run=found.record)
        return found
