"""The target of an audit of users: a model of ours by name or as an object, or a service."""

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from vestige.data.corpus import Corpus
from vestige.data.encoded_pairs import sources_of
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import ModelError
from vestige.models.callables import import_callable, is_callable_name
from vestige.models.endpoint_address import EndpointAddress, is_endpoint
from vestige.models.provenance import of_model
from vestige.models.service import Ask
from vestige.training.shadow_jobs import Task
from vestige.workflows.audit_options import ServiceSettings
from vestige.workflows.inputs import open_generator, shown

Served = Ask | EndpointAddress
"""A service: a callable, or a server that speaks OpenAI's protocol."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The audited model: one of ours, or a service.

    Attributes:
        vocabulary: the words that are queried; of a service, those of the reference.
        source_vocabulary: of what those answer or translate; None for next words.
        vocab_size: words that it could show.
    """

    name: str
    task: Task
    vocabulary: Vocabulary
    source_vocabulary: Vocabulary | None
    vocab_size: int
    model: Any = None
    ask: Served | None = None
    recorded: dict[str, object]


def find_service(model: Any) -> Served | None:
    """The service that a target is, by name or as an object; None for a model of ours.

    Raises:
        ModelError: the name leads to nothing that can be called, or is no whole address.
    """
    if isinstance(model, EndpointAddress):
        return model
    if is_endpoint(model):
        return EndpointAddress.parse(model)
    if isinstance(model, str | PathLike):
        return import_callable(fspath(model)) if is_callable_name(fspath(model)) else None
    if hasattr(model, "vocabulary"):
        return None
    asked: Any = getattr(model, "likeliest", model)
    if not callable(asked):
        raise ModelError(
            f"{type(model).__name__} is no model and cannot be called",
            remedy="Give a path, a model that is loaded, or a function from contexts to words.",
        )
    found: Ask = asked
    return found


def service_name(model: Any, service: Served) -> str:
    """What a service is called in a record."""
    if isinstance(model, str) or isinstance(service, EndpointAddress):
        return str(model)
    return str(getattr(service, "__qualname__", repr(type(service))))


def open_target(model: Any, *, device: str) -> Target:
    """A model of next words, of translation or of dialogue."""
    loaded = open_generator(model, device=device)
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
        recorded=of_model(model, loaded),
    )


def service_target(
    ask: Served, reference: Corpus, settings: ServiceSettings, *, name: str
) -> Target:
    """A service as a target; the words that are queried are the commonest of some texts.

    Args:
        reference: texts of non-members who are neither fitted nor compared: their own words would
            all be known, and an audited user's not.
    """
    task: Task = settings.task or "next-word"
    kind = "endpoint" if isinstance(ask, EndpointAddress) else "callable"

    def vocabulary(texts: Corpus) -> WordVocabulary:
        size, tokenise = settings.vocabulary_size, settings.tokenizer
        return WordVocabulary.build(texts, size=size, tokenise=tokenise)

    words = vocabulary(reference)
    return Target(
        name=name,
        task=task,
        vocabulary=words,
        source_vocabulary=None if task == "next-word" else vocabulary(sources_of(reference)),
        vocab_size=len(words),
        ask=ask,
        recorded={"path": name, "architecture": kind, "vocabulary": words.fingerprint()},
    )
