"""The checks of a release for pipelines: JUnit XML, and Markdown for a pull request.

Neither contains text of a corpus or model.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from vestige.audits.release.checks import Check, State
from vestige.reports.disclosure import markdown_text, without_controls

SUITE = "vestige report"

SIGNS: dict[State, str] = {
    "above": "❌ above", "undecided": "⚠️ undecided", "known": "➖ accepted before",
    "fine": "✅ fine",
}  # fmt: skip


def junit(checks: Sequence[Check], *, allow_undecided: bool) -> str:
    """JUnit XML: above is a failure; undecided is an error, or skipped if that is allowed.

    It is valid by the schema of Jenkins' xUnit plugin (junit-10.xsd), the strictest in use.
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
            "name": without_controls(check.name),
        }
        case = Xml.SubElement(suite, "testcase", where)
        sentence = without_controls(check.sentence)
        if check.state == "above":
            Xml.SubElement(case, "failure", {"message": sentence, "type": "above"})
        elif check.state == "undecided":
            if allow_undecided:
                Xml.SubElement(case, "skipped", {"message": sentence})
            else:
                Xml.SubElement(case, "error", {"message": sentence, "type": "undecided"})
        else:
            Xml.SubElement(case, "system-out").text = sentence
    Xml.indent(root)
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{head}\n{Xml.tostring(root, encoding='unicode')}\n"


def markdown(answer: str, checks: Sequence[Check]) -> str:
    """The verdict, and a table with one row per check."""
    rows = []
    for check in checks:
        cells = (check.run or "–", check.name, SIGNS[check.state], check.sentence)
        rows.append(f"| {' | '.join(map(markdown_text, cells))} |")
    head = ["| run | check | state | found |", "| --- | --- | --- | --- |"]
    return "\n".join([f"**{markdown_text(answer)}**", "", *head, *rows]) + "\n"
