"""What a gate says, for pipelines: JUnit XML, and Markdown for a pull request.

Neither holds a phrase: names of runs and quantities, numbers, and why something is undecided.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from vestige.release.judgement import Check, State
from vestige.reports.disclosure import markdown_text, without_controls

SUITE = "vestige gate"

SIGNS: dict[State, str] = {
    "above": "❌ above", "undecided": "⚠️ undecided", "known": "➖ accepted before",
    "fine": "✅ fine",
}  # fmt: skip


def junit(checks: Sequence[Check], *, allow_undecided: bool) -> str:
    """JUnit XML: above is a failure, undecided an error unless that is allowed.

    It is valid by the schema of Jenkins' xUnit plugin (junit-10.xsd), which is the strictest that
    servers use.
    """
    failed = sum(check.state == "above" for check in checks)
    open_ = sum(check.state == "undecided" for check in checks)
    counts = {
        "tests": str(len(checks)),
        "failures": str(failed),
        "errors": str(0 if allow_undecided else open_),
    }
    skipped = {"skipped": str(open_ if allow_undecided else 0)}
    root = Xml.Element("testsuites", {"name": SUITE, **counts})
    suite = Xml.SubElement(root, "testsuite", {"name": SUITE, **counts, **skipped})
    for check in checks:
        where = {
            "classname": without_controls(check.run or SUITE),
            "name": without_controls(_name(check)),
        }
        case = Xml.SubElement(suite, "testcase", where)
        said = without_controls(check.sentence)
        if check.state == "above":
            Xml.SubElement(case, "failure", {"message": said, "type": "above"})
        elif check.state == "undecided":
            if allow_undecided:
                Xml.SubElement(case, "skipped", {"message": said})
            else:
                Xml.SubElement(case, "error", {"message": said, "type": "undecided"})
        else:
            Xml.SubElement(case, "system-out").text = said
    Xml.indent(root)
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{head}\n{Xml.tostring(root, encoding='unicode')}\n"


def markdown(answer: str, checks: Sequence[Check]) -> str:
    """The answer, and a table with a row a check."""
    rows = []
    for check in checks:
        cells = (check.run or "–", _name(check), SIGNS[check.state], check.sentence)
        rows.append(f"| {' | '.join(map(markdown_text, cells))} |")
    head = ["| run | check | state | found |", "| --- | --- | --- | --- |"]
    return "\n".join([f"**{markdown_text(answer)}**", "", *head, *rows]) + "\n"


def _name(check: Check) -> str:
    return check.quantity if check.limit is None else f"{check.quantity} <= {check.limit:g}"
