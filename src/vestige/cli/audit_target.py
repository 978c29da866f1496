"""MODEL of an audit of users: a model of ours or Hugging Face's, or a Python callable."""

import os
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.errors import AccessDenied, ModelError

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.service import Ask
    from vestige.training.shadow_jobs import Task

CALLABLE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")
REMEDY = "Give it as package.module:function; modules are looked for in this directory, too."


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is audited; it has a model or a callable.

    Attributes:
        path: MODEL.
        task: what it does.
        vocabulary: the words that are asked about; of a callable, what the reference says.
        source_vocabulary: of what those answer or translate; None for next words.
        vocab_size: words that it could show.
        model: one of ours.
        ask: a callable.
        recorded: what a run says of it.
    """

    path: str
    task: "Task"
    vocabulary: "Vocabulary"
    source_vocabulary: "Vocabulary | None"
    vocab_size: int
    model: Any = None
    ask: "Ask | None" = None
    recorded: dict[str, object]


def is_callable(path: str) -> bool:
    """Whether MODEL names a Python callable."""
    return CALLABLE.fullmatch(path) is not None and not Path(path).exists()


def load_callable(path: str) -> "Ask":
    """Import what `package.module:function` names.

    Raises:
        ModelError: there is no such thing, or it cannot be called.
    """
    found = CALLABLE.fullmatch(path)
    if found is None:
        raise ModelError(f"{path} names no callable", remedy=REMEDY)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = import_module(found["module"])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a stranger's module may do
        raise ModelError(
            f"{path}: importing {found['module']} raised {type(error).__name__}: {error}",
            remedy=REMEDY,
        ) from error
    for name in found["name"].split("."):
        if not hasattr(value, name):
            raise ModelError(f"{path}: {found['module']} has no {name!r}", remedy=REMEDY)
        value = getattr(value, name)
    if not callable(value):
        raise ModelError(f"{path} is {type(value).__name__} and cannot be called", remedy=REMEDY)
    asked: Ask = value
    return asked


def load_target(path: str, *, device: str) -> Target:
    """Read a model of next words, of translation or of dialogue.

    Raises:
        ModelError: nothing there, or a model that says no words.
    """
    from vestige.cli.provenance import of_model
    from vestige.models.checkpoints import load_model, load_seq2seq

    try:
        model: Any = load_model(path, device=device)
    except AccessDenied as refused:
        try:
            model = load_seq2seq(path, device=device)
        except ModelError:
            raise refused from None
        return Target(
            path=path,
            task="translation" if model.config.attention else "dialogue",
            vocabulary=model.vocabulary,
            source_vocabulary=model.source_vocabulary,
            vocab_size=model.vocab_size,
            model=model,
            recorded=of_model(path, model),
        )
    return Target(
        path=path,
        task="next-word",
        vocabulary=model.vocabulary,
        source_vocabulary=None,
        vocab_size=model.vocab_size,
        model=model,
        recorded=of_model(path, model),
    )


def target_of(
    path: str, ask: "Ask", reference: "Corpus", *, task: "Task", size: int, tokenizer: Any
) -> Target:
    """A callable, with the words of some texts as those that are asked about.

    Args:
        path: MODEL.
        ask: what that is.
        reference: texts of people who are known to be out, and who are neither learnt from nor
            compared with: their own words would all be in, and an audited user's not.
        task: what it does.
        size: words at most, of texts and of sources.
        tokenizer: how texts become words, "whitespace" or "words".
    """
    from vestige.data.encoded_pairs import sources_of
    from vestige.data.vocabulary import WordVocabulary

    words = WordVocabulary.build(reference, size=size, tokenise=tokenizer)
    source = None
    if task != "next-word":
        source = WordVocabulary.build(sources_of(reference), size=size, tokenise=tokenizer)
    return Target(
        path=path,
        task=task,
        vocabulary=words,
        source_vocabulary=source,
        vocab_size=len(words),
        ask=ask,
        recorded={
            "path": path,
            "architecture": "callable",
            "vocabulary": words.fingerprint(),
        },
    )
