"""The audited model of `vestige membership --unit user`: a local one, a function or a server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import AccessDenied, ModelError
from vestige.models.callables import import_callable, is_callable_name
from vestige.models.endpoint_address import EndpointAddress, is_endpoint
from vestige.models.top_k import Context
from vestige.training.shadow_jobs import Task

if TYPE_CHECKING:
    from vestige.audits.membership.query_options import QueryOptions
    from vestige.data.corpus import Corpus
    from vestige.session import Session

Ask: TypeAlias = Callable[[Sequence[Context]], Any]
Remote: TypeAlias = Ask | EndpointAddress


@dataclass(frozen=True, kw_only=True)
class Target:
    """The audited model.

    Attributes:
        name: in messages.
        task: what it does.
        vocabulary: its words; of a remote model, the most frequent ones of some reference texts.
        source_vocabulary: of the texts that it answers or translates; None for next words.
        vocab_size: words that it could show.
        model: the network; None for a remote model.
        remote: the function or the server's address; None for a local model.
        record: provenance.
    """

    name: str
    task: Task
    vocabulary: Vocabulary
    source_vocabulary: Vocabulary | None = None
    vocab_size: int
    model: Any = None
    remote: Remote | None = None
    record: dict[str, Any]

    @property
    def is_server(self) -> bool:
        """Whether it is behind a server that speaks OpenAI's protocol."""
        return isinstance(self.remote, EndpointAddress)


def remote_of(model: Any) -> Remote | None:
    """The function or the server that MODEL names; None for a local model.

    Raises:
        ModelError: the name leads to nothing that can be called, or is no complete address.
    """
    if isinstance(model, EndpointAddress):
        return model
    if isinstance(model, str | PathLike):
        name = fspath(model)
        if is_endpoint(name):
            return EndpointAddress.parse(name)
        return import_callable(name) if is_callable_name(name) else None
    if hasattr(model, "vocabulary"):
        return None
    ask: Any = getattr(model, "likeliest", model)
    if not callable(ask):
        raise ModelError(
            f"{type(model).__name__} is neither a model nor a function",
            remedy="Give a path, a loaded model, or a function from contexts to words.",
        )
    return ask  # type: ignore[no-any-return]


def local_target(run: "Session", model: Any) -> Target:
    """A model of next words, translations or dialogue."""
    from vestige.training_runs import useless_model

    if warning := useless_model(model):
        run.log(warning)
    loaded = _generator(run, model)
    source = getattr(loaded, "source_vocabulary", None)
    task: Task = "next-word"
    if source is not None:
        task = "translation" if loaded.config.attention else "dialogue"
    return Target(
        name=shown(model),
        task=task,
        vocabulary=loaded.vocabulary,
        source_vocabulary=source,
        vocab_size=loaded.vocab_size,
        model=loaded,
        record=run.models["target"],  # type: ignore[arg-type]
    )


def remote_target(
    run: "Session", model: Any, remote: Remote, texts: "Corpus", options: "QueryOptions"
) -> Target:
    """A remote model; Vestige queries the most frequent words of some texts.

    Args:
        run: records it.
        model: as given.
        remote: of `remote_of`.
        texts: of non-members who have no other part in the audit: the model must not know all
            words of some users, and not those of others.
        options: task, words and tokenizer.
    """
    from vestige.data.encoded_pairs import sources_of

    def words_of(corpus: "Corpus") -> WordVocabulary:
        size, tokenise = options.vocabulary_size, options.tokenizer
        return WordVocabulary.build(corpus, size=size, tokenise=tokenise)

    task: Task = options.task or "next-word"
    name, words = _name(model, remote), words_of(texts)
    kind = "endpoint" if isinstance(remote, EndpointAddress) else "callable"
    record = {"path": name, "architecture": kind, "vocabulary": words.fingerprint()}
    run.models["target"] = record
    return Target(
        name=name,
        task=task,
        vocabulary=words,
        source_vocabulary=None if task == "next-word" else words_of(sources_of(texts)),
        vocab_size=len(words),
        remote=remote,
        record=record,
    )


def shown(model: object) -> str:
    """A path, or the class of a loaded model."""
    return fspath(model) if isinstance(model, str | PathLike) else f"<{type(model).__name__}>"


def _name(model: Any, remote: Remote) -> str:
    if isinstance(model, str) or isinstance(remote, EndpointAddress):
        return str(model)
    return str(getattr(remote, "__qualname__", repr(type(remote))))


def _generator(run: "Session", model: Any) -> Any:
    """A language model, or an encoder-decoder, in evaluation mode."""
    from vestige.models.checkpoints import load_seq2seq

    try:
        return run.model("target", model)
    except AccessDenied as refused:
        try:
            loaded = load_seq2seq(str(model), device=run.device)
        except ModelError:
            raise refused from None
        run.record_model("target", model, loaded)
        return loaded
