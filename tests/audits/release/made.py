"""Runs for a report: made by hand, with a verdict and a few numbers."""

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


def made(out, kind, verdict=None, phrases=(), *, run=None, claim=None, **summary):
    """A run folder of a kind of result; without a verdict it has no claim."""
    rows = [{"kind": "phrase", "found": True, "phrase": one} for one in phrases] or [{"kind": "-"}]
    if verdict is not None:
        summary |= (claim or made_claim(VERBS_OF[kind], verdict)).summary()
    content = {"summary": lambda self: summary, "rows": lambda self: rows}
    results.save(type(kind, (), content)(), out, run=run or {})
    return out


def diffed(out, *phrases, verdict=None, complete=True, **more):
    verdict = verdict or (LEAK if phrases else NO_LEAK)
    found = len(phrases)
    return made(out, "UpdateDiff", verdict, phrases, complete=complete, found=found, **more)


def exposed(out, value, low, high, *, bound=False, verdict=NO_LEAK, **more):
    numbers = {"": value, "_low": low, "_high": high, "_is_bound": bound}
    numbers = {f"exposure_planted{end}": number for end, number in numbers.items()}
    return made(out, "CanaryExposure", verdict, sentence="…", references=128, **numbers, **more)


def audited(out, verdict=LEAK, least=3, most=None):
    return made(out, "TextAudit", verdict, at_least=least, at_most=most)


def deleted(out, verdict):
    return made(out, "Deletion", verdict, left=0.1, left_low=0.0, left_high=0.15)


def with_secrets(out, *found, verdict=LEAK, in_part=0):
    return made(
        out, "SecretExposure", verdict, found, found=len(found), in_part=in_part, possible=True
    )


# What Jenkins' junit-10.xsd requires of the elements that a gate writes: attributes that it must
# have, others that it may have, and elements inside. Documents were held to the schema itself, too.
ENDS = ("failure", "error", "skipped", "system-out")
SCHEMA = {
    "testsuites": ({"name"}, {"tests", "failures", "errors"}, ("testsuite",)),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"skipped"}, ("testcase",)),
    "testcase": ({"name"}, {"classname"}, ENDS),
    **dict.fromkeys(ENDS[:3], (set(), {"type", "message"}, ())),
    "system-out": (set(), set(), ()),
}


def assert_fits_the_schema(element):
    must, may, inside = SCHEMA[element.tag]
    assert must <= set(element.attrib) <= must | may, element.tag
    for child in element:
        assert child.tag in inside
        assert_fits_the_schema(child)
