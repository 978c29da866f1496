"""Vocabularies of a training: learnt from its text, or those of another model."""

from pathlib import Path
from typing import Literal

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary, WordVocabulary, load_vocabulary
from vestige.models.folders import model_folder

Tokenizer = Literal["words", "whitespace", "bpe"]
BPE_SIZE = 4096


def borrow(model: str | Path) -> Vocabulary:
    """The vocabulary of a saved model or of a training's directory."""
    return load_vocabulary(model_folder(model))


def learn_vocabulary(
    corpus: Corpus,
    tokenizer: Tokenizer | None,
    *,
    size: int | None,
    usual: int | None,
    keep: tuple[str, ...] = (),
) -> Vocabulary:
    """A vocabulary of a corpus.

    Args:
        corpus: read once.
        tokenizer: None splits at blanks.
        size: tokens at most; None: as many words as usual, or BPE_SIZE pieces.
        usual: words that the preset keeps; None: all.
        keep: texts whose words it must have.
    """
    if tokenizer == "bpe":
        return SubwordVocabulary.train_bpe(corpus, size=size or BPE_SIZE)
    return WordVocabulary.build(
        corpus, size=size or usual, tokenise=tokenizer or "whitespace", keep=keep
    )
