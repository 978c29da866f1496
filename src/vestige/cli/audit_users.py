"""`vestige audit-users`: was the text of these people in a model's training data?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vestige.cli import audit_options as asked_for
from vestige.cli import options
from vestige.cli.audit_asking import Choice
from vestige.cli.audit_directory import RUN, SHADOWS, check_out, claimed
from vestige.cli.audit_run import Audit
from vestige.cli.audit_service import Patience
from vestige.cli.audit_shadows import WantedShadows
from vestige.cli.audit_target import Target, is_callable, load_callable, load_target, target_of
from vestige.cli.audit_texts import AuditTexts, TextSources
from vestige.cli.audit_words import show_audit
from vestige.cli.tasks import given
from vestige.cli.terminal import say, show_json
from vestige.errors import RunError
from vestige.workflows.training_runs import useless_model

if TYPE_CHECKING:
    from vestige.training.shadow_jobs import Task

SERVICE_ONLY = ("budget", "timeout", "attempts", "task", "vocabulary_size", "tokenizer")
"""Parameters that only a callable has."""


def command(
    context: typer.Context,
    model: asked_for.Model,
    texts: asked_for.Texts,
    reference: asked_for.Reference,
    out: asked_for.Out,
    person: asked_for.Person = None,
    artificial: asked_for.Artificial = None,
    top_k: asked_for.Shown = None,
    queries: asked_for.Queries = None,
    calls: asked_for.Calls = None,
    select: asked_for.SelectedBy = None,
    rate: asked_for.Rate = 0.05,
    budget: asked_for.Budget = None,
    timeout: asked_for.Timeout = None,
    attempts: asked_for.Attempts = 4,
    task: asked_for.Task = None,
    vocabulary_size: asked_for.VocabularySize = 5000,
    tokenizer: asked_for.Tokenizer = "whitespace",
    shadows: asked_for.Shadows = 10,
    shadow_dir: asked_for.ShadowDir = None,
    other_shapes: asked_for.OtherShapes = False,
    architecture: asked_for.Kind = None,
    hidden_size: asked_for.HiddenSize = None,
    embedding_size: asked_for.EmbeddingSize = None,
    epochs: asked_for.Epochs = None,
    batch_size: asked_for.BatchSize = None,
    sequence_length: asked_for.SequenceLength = None,
    learning_rate: asked_for.LearningRate = None,
    optimizer: asked_for.LearntBy = None,
    momentum: asked_for.Momentum = None,
    processes: asked_for.Processes = 1,
    cluster: asked_for.Cluster = None,
    format: options.DataFormat = "auto",
    text: options.TextColumn = "text",
    user: options.UserColumn = None,
    source: asked_for.SourceColumn = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    show_secrets: asked_for.ShowSecrets = False,
) -> None:
    """Say whose text a model was trained on, with a p-value for everybody.

    The model is asked for the next word, again and again, along the texts. Whose text it has
    learnt, for them it ranks the true words higher than could be expected, and higher than for
    people who are known to be out: the p-value is how often one of these does as well, with as
    much text. What to expect is learnt from some of them, and from shadow models, which this verb
    trains on their text. 37 people or more are needed for a p-value of 0.05, a hundred are better;
    their texts must be of the same kind and time as those that are audited, or the difference
    will be taken for memory. A p-value that is not small does not show that somebody was out.

    For a person, --texts is a file of their own texts, and MODEL often a service: a Python
    function that asks it. Everything that it says is kept in DIR, and counted: give --budget,
    and --queries or --calls to ask about less. For an owner, --texts holds all users (--user
    names the column), and --rate bounds the share of mistakes among those that are called.

    An audit that was interrupted goes on when the same command is given again; no model is
    trained twice and nothing is asked twice. Another audit takes trained shadow models from
    --shadow-dir. DIR holds texts and users' names in the clear.

    Examples:

        vestige audit-users trained --texts mine.jsonl --reference others.jsonl --user author --out audit

        vestige report audit/run --out page.html

        vestige audit-users my_service:ask --texts mine.jsonl --reference others.jsonl --user author --top-k 5 --calls 100 --budget 12000 --timeout 30 --out audit

        vestige audit-users trained --texts users.jsonl --reference held-out.jsonl --user author --processes 4 --out before-release

        vestige audit-users trained --texts users.jsonl --reference held-out.jsonl --user author --top-k 50 --shadow-dir before-release/shadows --out shown-50
    """  # noqa: E501
    from vestige import results

    if not (service := is_callable(model)):
        _refuse_service_options(context)
    shadow_models = WantedShadows(
        count=shadows, other_shapes=other_shapes, cell=architecture,
        sizes={"hidden_size": hidden_size, "embedding_size": embedding_size},
        training={
            "epochs": epochs, "batch_size": batch_size, "sequence_length": sequence_length,
            "learning_rate": learning_rate, "optimizer": optimizer, "momentum": momentum,
        },
        processes=processes, cluster=cluster, device=device, seed=seed,
    )  # fmt: skip
    shadow_models.check()
    choice = Choice.of(
        select, queries=queries, calls=calls, k=top_k, rate=rate, seed=seed,
        shadows=shadows, callable=service,
    )  # fmt: skip
    patience = Patience(budget=budget, timeout=timeout, attempts=attempts)
    patience.check()
    check_out(out)
    sources = TextSources(
        texts=texts, reference=reference, format=format, text=text, user=user, source=source,
        limit=limit, person=person, artificial=artificial,
    )  # fmt: skip
    warning = None if is_callable(model) else useless_model(model)
    if warning is not None:
        say(warning)
    words = {"size": vocabulary_size, "tokenizer": tokenizer}
    target, parts = _load(model, sources, task, words, device, seed, show_secrets)
    audit = Audit.prepared(
        target, parts, choice.of_target(target.vocab_size, service=service),
        shadow_models, patience, out=out, shadow_dir=shadow_dir or out / SHADOWS,
        show_secrets=show_secrets,
    )  # fmt: skip
    with claimed(out, audit.identity):
        if (out / RUN).exists():
            say(f"{out} holds this audit, finished: nothing is done again")
        else:
            _save(context, audit, sources, out / RUN)
    run = results.load(out / RUN)
    if json:
        show_json(run.summary, show_secrets=show_secrets)
        return
    try:
        show_audit(run, show_secrets=show_secrets)
    except (LookupError, ArithmeticError, TypeError, ValueError) as error:
        raise RunError(
            f"{out / RUN} holds rows that no audit has",
            remedy="It was changed or is damaged; remove it, and the same command makes it again.",
        ) from error
    say(f"A page from it: vestige report {out / RUN} --out page.html")


def _refuse_service_options(context: typer.Context) -> None:
    for parameter in context.command.params:
        if parameter.name in SERVICE_ONLY and given(context, parameter.name):
            raise ValueError(
                f"{parameter.opts[0]} must be left out unless MODEL is a callable, "
                "package.module:function"
            )


def _load(
    model: str,
    sources: TextSources,
    task: "Task | None",
    words: dict[str, Any],
    device: str,
    seed: int,
    show_secrets: bool,
) -> tuple[Target, AuditTexts]:
    """The target and the texts; a callable's words are those of some of the reference."""
    if is_callable(model):
        ask, does = load_callable(model), task or "next-word"
        parts = sources.read(seed=seed, show_secrets=show_secrets).sourced(does != "next-word")
        counted, _, _ = parts.groups(seed=seed)
        return target_of(model, ask, parts.reference_of(counted), task=does, **words), parts
    target = load_target(model, device=device)
    parts = sources.read(seed=seed, show_secrets=show_secrets)
    return target, parts.sourced(target.task != "next-word")


def _save(context: typer.Context, audit: Audit, sources: TextSources, run: Path) -> None:
    from vestige import results
    from vestige.cli.provenance import of_corpus, record

    recorded = record(
        context,
        audit.identity["settings"],
        seed=audit.choice.seed,
        models={"target": audit.asking.target.recorded},
        data={
            "texts": of_corpus(sources.texts, audit.asking.parts.texts),
            "reference": of_corpus(sources.reference, audit.asking.parts.reference),
        },
    )
    results.save(audit.run(), run, run=recorded)
