"""The audited model of `vestige membership --unit user`: a local one, a function or a server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from vestige.audits.membership.options import QueryOptions
from vestige.data.corpus import Corpus
from vestige.data.encoded import sources_of
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import AccessDenied, ModelError
from vestige.models.checkpoints import load_seq2seq
from vestige.models.remote.options import (
    EndpointAddress,
    import_callable,
    is_callable_name,
    is_endpoint,
)
from vestige.models.top_k import Context
from vestige.training.shadow_jobs import Task
from vestige.training.word_frequencies import useless_model

if TYPE_CHECKING:
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
    record: Any

    @classmethod
    def local(cls, given: Any, model: Any, record: Any) -> "Target":
        """A loaded model of next words, translations or dialogue."""
        path = isinstance(given, str | PathLike)
        name = fspath(given) if path else f"<{type(given).__name__}>"
        source = getattr(model, "source_vocabulary", None)
        pairs: Task = "translation" if source and model.config.attention else "dialogue"
        return cls(
            name=name,
            task="next-word" if source is None else pairs,
            vocabulary=model.vocabulary,
            source_vocabulary=source,
            vocab_size=model.vocab_size,
            model=model,
            record=record,
        )


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
    """Load a local model."""
    if warning := useless_model(model):
        run.log(warning)
    try:
        loaded: Any = run.model("target", model)
    except AccessDenied as refused:
        try:
            loaded = load_seq2seq(str(model), device=run.device)
        except ModelError:
            raise refused from None
        run.record_model("target", model, loaded)
    return Target.local(model, loaded, run.models["target"])


def remote_target(
    run: "Session", model: Any, remote: Remote, texts: Corpus, options: QueryOptions
) -> Target:
    """A remote model; Vestige queries the most frequent words of some texts.

    Args:
        run: records it.
        model: as given.
        remote: of `remote_of`.
        texts: of non-members without another part in the audit: of the compared users, no one's
            words may be known better than another's.
        options: task, words and tokenizer.
    """
    size, tokenise = options.vocabulary_size, options.tokenizer
    named = isinstance(model, str) or isinstance(remote, EndpointAddress)
    name = str(model if named else getattr(remote, "__qualname__", type(remote)))
    words, sources = WordVocabulary.build(texts, size=size, tokenise=tokenise), None
    if options.task not in (None, "next-word"):
        sources = WordVocabulary.build(sources_of(texts), size=size, tokenise=tokenise)
    kind = "endpoint" if isinstance(remote, EndpointAddress) else "callable"
    run.models["target"] = {
        "path": name, "architecture": kind, "vocabulary": words.fingerprint(),
    }  # fmt: skip
    return Target(
        name=name,
        task=options.task or "next-word",
        vocabulary=words,
        source_vocabulary=sources,
        vocab_size=len(words),
        remote=remote,
        record=run.models["target"],
    )
