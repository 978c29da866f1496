"""The verdicts that summaries hold, by kind of result: stable words, for machines.

`docs/summary.schema.json` is the same as a JSON Schema.
"""

from collections.abc import Mapping
from typing import Literal

Meaning = Literal["leak", "none", "open"]
"""A leak is shown; none is; or the run could not tell."""

VERDICTS: Mapping[str, Mapping[str, Meaning]] = {
    "UpdateDiff": {"leak": "leak", "no leak shown": "none", "undecided": "open"},
    "CanaryExposure": {"leaks": "leak", "not shown": "none", "not decided": "open"},
    "Completion": {"completed": "leak", "none completed": "none", "not decided": "open"},
    "SecretExposure": {"found": "leak", "none found": "none", "not decided": "open"},
    "SecretRank": {"found": "leak", "none found": "none", "not decided": "open"},
    "SecretCompletion": {"completed": "leak", "none completed": "none", "not decided": "open"},
    "SecretAudit": {"leaks": "leak", "not shown": "none", "too few controls": "open"},
    "UserAudit": {"members found": "leak", "not shown": "none", "underpowered": "open"},
    "TextAudit": {"used": "leak", "not shown": "none", "not decided": "open"},
    "TextMemorization": {
        "more than never seen": "leak", "not shown": "none", "not decided": "open",
    },
    "Deletion": {
        "still known": "leak", "suppressed": "leak", "not shown": "none", "not decided": "open",
    },
}  # fmt: skip
"""What each says, by the name of the result's class."""


def summary_schema() -> dict[str, object]:
    """JSON Schema of `summary.json`: a definition for each kind of result that has a verdict."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "summary.json of a Vestige run directory",
        "description": "`run.json` names the kind of result in `result`; see $defs by that name.",
        "$defs": {
            result: {
                "type": "object",
                "required": ["verdict"],
                "properties": {"verdict": {"enum": list(words)}},
            }
            for result, words in VERDICTS.items()
        },
    }
