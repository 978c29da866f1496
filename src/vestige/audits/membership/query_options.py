"""Options of `vestige membership --unit user`: which words Vestige asks the model about."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from annotated_types import Ge, Le
from cyclopts import Group, Parameter

from vestige.arguments import Count, Whole, Width

Select = Literal["all", "random", "rare", "informative"]
ServiceTask = Literal["next-word", "translation", "dialogue"]
OF_SERVICE = ("task", "vocabulary_size", "tokenizer")


@Parameter(name="*", group=Group("Queries", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """Queries about users' words.

    Attributes:
        top_k: Most probable words that MODEL shows. Default: all; a remote model needs it.
        queries: Texts of each user to query, every word of them.
        calls: Single words of each user to query.
        select: Which texts or words: random, rare (by mean frequency), or informative (those that
            training can move into the top k). Default: informative for `calls` with shadow models,
            else random.
        task: What a function does. Default: next-word.
        vocabulary_size: Words of a remote model: the most frequent ones of `reference`.
        tokenizer: Split texts for a remote model at whitespace, or also at punctuation (words).
    """

    top_k: Width | None = None
    queries: Count | None = None
    calls: Count | None = None
    select: Select | None = None
    task: ServiceTask | None = None
    vocabulary_size: Annotated[Whole, Ge(3), Le(2**24)] = 5000
    tokenizer: Literal["whitespace", "words"] = "whitespace"

    def changed(self) -> list[str]:
        """The options that were set."""
        usual = QueryOptions()
        names = [one.name for one in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(usual, name)]
