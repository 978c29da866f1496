"""`vestige membership`: was a text, or a person's text, in the training data of a model?"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Unpack

from annotated_types import Ge, Le
from cyclopts import Group, Parameter

from vestige.arguments import (
    AuthorColumn,
    CorpusLike,
    Count,
    Format,
    Limit,
    ModelLike,
    Natural,
    PathTo,
    Positive,
    Probability,
    Resumable,
    SourceColumn,
    TextColumn,
    UserColumn,
    Whole,
    Width,
    group,
)
from vestige.models.remote.options import RemoteOptions
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.models.remote.functions import Ask
    from vestige.models.remote.options import EndpointAddress
    from vestige.models.top_k import TopK

    Target: TypeAlias = ModelLike | Ask | TopK | EndpointAddress
else:
    Target = str

Select = Literal["all", "random", "rare", "informative"]
ServiceTask = Literal["next-word", "translation", "dialogue"]

TRAINING_OPTIONS = ("epochs", "batch_size", "sequence_length", "learning_rate")

TEXTS, TEST = group("Texts", order=1), group("Test", order=2)
SHADOWS, RUN = group("Shadow models", order=3), group("Run", order=9)


@dataclass(frozen=True)
class Options:
    """A group of options."""

    def changed(self, *names: str) -> dict[str, Any]:
        """The options that differ from their defaults: all, or those of these names."""
        return {
            option.name: value
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
            and (not names or option.name in names)
        }


@Parameter(name="*", group=Group("Shadow models", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class ShadowOptions(Options):
    """Shadow models.

    Attributes:
        shadows: Models to train, each on half of the shadow texts; for users, of the reference
            users that Vestige does not compare with. 0 for none. Default: 4 for texts, 10 for
            users.
        shadow_dir: Folder of shadow models, reused by later audits. Default: OUT.shadows.
        epochs: Passes over the data. Default: those of MODEL if known, else the preset's.
        batch_size: Texts per step. Default: as for epochs.
        learning_rate: Highest learning rate. Default: as for epochs.
        sequence_length: Most tokens of a text read at once. Default: as for epochs.
        other_shapes: Use GRUs of 64 to 352 units, if the architecture of MODEL is unknown. For
            users only.
        hidden_size: Units of a layer. Default: those of MODEL if known. For users only.
        processes: Models to train at a time. For users only.
    """

    shadows: Annotated[Natural, Le(10_000)] | None = None
    shadow_dir: PathTo | None = None
    epochs: Count | None = None
    batch_size: Width | None = None
    learning_rate: Positive | None = None
    sequence_length: Width | None = None
    other_shapes: bool = False
    hidden_size: Width | None = None
    processes: Annotated[Count, Le(1024)] = 1

    def __post_init__(self) -> None:
        if self.other_shapes and self.hidden_size is not None:
            raise ValueError(
                "`hidden_size` does not go with `other_shapes`, which has its own sizes"
            )


@Parameter(name="*", group=Group("Queries", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class QueryOptions(Options):
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


@verb
def membership(
    run: Session,
    model: Target,
    *,
    texts: Annotated[CorpusLike, TEXTS, Parameter(metavar="DATA")],
    reference: Annotated[CorpusLike, TEXTS, Parameter(metavar="DATA")],
    used: Annotated[CorpusLike | None, TEXTS, Parameter(metavar="DATA")] = None,
    unit: Annotated[Literal["text", "user"], TEXTS] = "text",
    person: Annotated[str | None, TEXTS, Parameter(metavar="NAME")] = None,
    random_users: Annotated[Annotated[Whole, Ge(2), Le(10**6)] | None, TEXTS] = None,
    base: Annotated[ModelLike | None, TEST, Parameter(metavar="MODEL")] = None,
    score: Annotated[str | None, TEST, Parameter(metavar="NAME")] = None,
    alpha: Annotated[Probability, TEST] = 0.05,
    shadow_texts: Annotated[CorpusLike | None, SHADOWS, Parameter(metavar="DATA")] = None,
    shadows: ShadowOptions = ShadowOptions(),
    queries: QueryOptions = QueryOptions(),
    remote: RemoteOptions = RemoteOptions(),
    format: Format = "auto",
    text: TextColumn = "text",
    user: UserColumn = None,
    author: AuthorColumn = None,
    source: SourceColumn = None,
    limit: Limit = None,
    statistics: Annotated[PathTo | None, RUN, Parameter(metavar="DIR")] = None,
    cluster: Annotated[str | None, RUN, Parameter(metavar="HOST:PORT")] = None,
    **common: Unpack[Resumable],
) -> Result:
    """Test whether texts or users were in the training data.

    A p-value is how often non-members score as high, not the probability of use. The reference
    must be of the same kind and time as the tested texts: Vestige compares words, case, script and
    length, and the verdict is "undecided" if they differ. A p-value of 0.05 needs 19 reference
    texts, hundreds are better; users need 37 reference users, or 19 with --base.

    With --base the scores are much stronger. Without --used there is no upper bound on the number
    of used texts. With --author, texts of one author count as one unit. Near-duplicates count once.

    --unit user tests whole users: the model ranks the next word along their texts.

    "No leak shown" excludes a list whose texts outrank the reference in 65 of 100 pairs; for
    users, 75 of 100. It needs eight units per side.

    Examples:
        vestige membership fine-tuned --base base --texts mine.jsonl --reference never.jsonl --out a
        vestige membership my-lora-adapter --texts mine.jsonl --reference never.jsonl --used known.jsonl --out b
        vestige membership my_service:ask --unit user --texts mine.jsonl --reference others.jsonl --user author --top-k 5 --calls 100 --out c

    Args:
        model: Folder, hub name, adapter, openai:URL#MODEL or module:function.
        texts: Texts or users to test (required).
        reference: Known non-members (required).
        used: Known members: gives an upper bound. For texts only.
        unit: What to test.
        person: Author of all of --texts. Default: me, if the data has no user column.
        random_users: Split --reference at random into this many users.
        base: Model before fine-tuning. Default: the base of an adapter.
        score: Score of texts: error-zone (gains over losses where MODEL errs; default with a base),
            log-ratio, rmia or calibrated (all need a base); loss (default without), min-k,
            min-k-plus or zlib; learned (the strongest; from shadow models).
        alpha: False discovery rate of flags; error rate of the verdict and of each bound.
        shadow_texts: Texts of the same kind, neither tested nor used, to train shadow models on.
            For texts only.
        statistics: Folder of cached model outputs. Default: OUT.statistics.
        cluster: Read the texts on the Ray cluster with this head.

    Raises:
        ValueError: options contradict each other.
        VestigeError: something cannot be read, the reference is too small, or a server fails.
    """  # noqa: E501
    if unit == "user":
        _require_unit("text", used=used, score=score, shadow_texts=shadow_texts, author=author)
        from vestige.audits.membership.users import users_membership

        return users_membership(run)
    user_options = queries.changed() | shadows.changed("other_shapes", "hidden_size", "processes")
    _require_unit(
        "user",
        person=person,
        random_users=random_users,
        user=user,
        source=source,
        **user_options,
    )
    from vestige.audits.membership.texts import texts_membership

    return texts_membership(run)


def _require_unit(unit: str, **options: object) -> None:
    """Raise ValueError if an option is given that only this unit has."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"`{name}` needs `unit` {unit}")
