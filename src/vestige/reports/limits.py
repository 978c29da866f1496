"""What each kind of result does not say, in words for its reader."""

_ALWAYS = (
    "Redaction on this page is for reading over a shoulder: the run directories beside it hold "
    "every phrase in the clear.",
)

_LIMITS = {
    "UpdateDiff": (
        "A high score says that the second model prefers this text more than the first did. It "
        "does not prove that the text stood in the training data: models also compose.",
        "A phrase that is missing here is not thereby safe. The search is a heuristic, and "
        "knowing part of a phrase can reveal the rest (a rank’s profile shows how much).",
        "The threshold is where one null pair's scores would put one phrase in twenty searches. It "
        "knows chance in training only: an update with other text also changes what is common.",
        "Scores of different searches, scores or token vocabularies are not comparable.",
    ),
    "DifferentialRank": (
        "The rank counts token sequences of the same length only, in this vocabulary's tokens.",
        "Bounds are proven; nothing is said about where between them the rank lies.",
        "A rank measures this phrase in this pair of models: the same phrase after another "
        "update, or in another context, has another.",
        "A low probability without a prefix does not protect the end of a phrase from someone "
        "who knows its beginning: read the profile.",
    ),
}


def limits_of(result: str) -> tuple[str, ...]:
    """The limits of a result by the name of its class."""
    return (*_LIMITS.get(result, ()), *_ALWAYS)
