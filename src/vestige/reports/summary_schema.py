"""JSON Schema of `summary.json`, published as `docs/summary.schema.json`."""

from vestige.claims import VERDICTS
from vestige.reports.verdicts import VERBS


def summary_schema() -> dict[str, object]:
    """A definition for each kind of result that has a verdict."""
    number, maybe = {"type": "number"}, {"type": ["number", "null"]}
    text = {"type": "string"}
    check = _object(
        name=text,
        state={"enum": ["passed", "failed", "could not run"]},
        sentence=text,
        blocks={"type": "array", "items": {"enum": list(VERDICTS[:2])}},
    )
    estimate = _object(name=text, value=maybe, low=maybe, high=maybe, unit=text)
    claim = _object(
        verb=text,
        test=_or_null(_object(p=number, least=number, alpha=number, against=text)),
        checks={"type": "array", "items": check},
        estimate=_or_null(estimate),
        direct=_or_null(_object(sentence=text, bound=number)),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "summary.json of a Vestige run directory",
        "description": "`run.json` names the kind of result in `result`; see $defs by that name.",
        "$defs": {
            "claim": claim,
            **{
                result: {
                    "type": "object",
                    "required": ["verdict", "claim"],
                    "properties": {
                        "verdict": {"enum": list(VERDICTS)},
                        "claim": {
                            "$ref": "#/$defs/claim",
                            "properties": {"verb": {"pattern": _beginning(verbs)}},
                        },
                    },
                }
                for result, verbs in VERBS.items()
            },
        },
    }


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _or_null(schema: object) -> dict[str, object]:
    return {"anyOf": [schema, {"type": "null"}]}


def _beginning(verbs: tuple[str, ...]) -> str:
    return f"^({'|'.join(verbs)})( |$)"
