"""Handmade run folders with a verdict and a few numbers."""

from tests.reports.made_claims import made_claim
from vestige import results
from vestige.claims import LEAK, NO_LEAK

VERBS_OF = {
    "UpdateDiff": "diff",
    "CanaryExposure": "exposure",
    "TextAudit": "membership",
    "Deletion": "unlearning",
    "SecretExposure": "exposure secrets",
    "UserAudit": "membership",
}


def save_run(folder, kind, verdict=None, phrases=(), *, run=None, claim=None, **summary):
    """Save a run of a kind of result; without a verdict it has no claim."""
    rows = [{"kind": "phrase", "found": True, "phrase": text} for text in phrases]
    rows = rows or [{"kind": "-"}]
    if verdict is not None:
        summary |= (claim or made_claim(VERBS_OF[kind], verdict)).summary()
    methods = {"summary": lambda self: summary, "rows": lambda self: rows}
    results.save(type(kind, (), methods)(), folder, run=run or {})
    return folder


def save_diff(folder, *phrases, verdict=None, complete=True, **more):
    verdict = verdict or (LEAK if phrases else NO_LEAK)
    count = len(phrases)
    return save_run(folder, "UpdateDiff", verdict, phrases, complete=complete, found=count, **more)


def save_exposure(folder, value, low, high, *, bound=False, verdict=NO_LEAK, **more):
    numbers = {"": value, "_low": low, "_high": high, "_is_bound": bound}
    numbers = {f"exposure_planted{end}": number for end, number in numbers.items()}
    return save_run(
        folder, "CanaryExposure", verdict, sentence="…", references=128, **numbers, **more
    )


def save_text_audit(folder, verdict=LEAK, least=3, most=None):
    return save_run(folder, "TextAudit", verdict, at_least=least, at_most=most)


def save_deletion(folder, verdict):
    return save_run(folder, "Deletion", verdict, left=0.1, left_low=0.0, left_high=0.15)


def save_secrets(folder, *phrases, verdict=LEAK, in_part=0):
    counts = {"found": len(phrases), "in_part": in_part, "possible": True}
    return save_run(folder, "SecretExposure", verdict, phrases, **counts)


# The part of Jenkins' junit-10.xsd that reports use: required attributes, optional ones, children.
# Documents were also validated with the schema itself.
OUTCOMES = ("failure", "error", "skipped", "system-out")
SCHEMA = {
    "testsuites": ({"name"}, {"tests", "failures", "errors"}, ("testsuite",)),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"skipped"}, ("testcase",)),
    "testcase": ({"name"}, {"classname"}, OUTCOMES),
    **dict.fromkeys(OUTCOMES[:3], (set(), {"type", "message"}, ())),
    "system-out": (set(), set(), ()),
}


def assert_valid_junit(element):
    required, optional, children = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= required | optional, element.tag
    for child in element:
        assert child.tag in children
        assert_valid_junit(child)
