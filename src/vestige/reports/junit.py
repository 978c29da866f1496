"""Conditions as JUnit XML for CI pipelines.

The XML is valid by the schema of Jenkins' xUnit plugin (junit-10.xsd), the strictest one. It
contains no text of a corpus or model.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree as Xml

from vestige.reports.disclosure import replace_controls

End = Literal["failure", "error", "skipped", "system-out"]
"""Outcome of a condition: failed, undecided, left out, or passed."""


class Case(NamedTuple):
    """One condition: group, name, outcome, the finding, and the state in a word."""

    group: str
    name: str
    end: End
    sentence: str
    state: str


def junit(suite: str, cases: Sequence[Case]) -> str:
    """One test suite as XML."""
    ends = [case.end for case in cases]
    counts = {"tests": str(len(cases))}
    counts |= {"failures": str(ends.count("failure")), "errors": str(ends.count("error"))}
    root = Xml.Element("testsuites", {"name": suite, **counts})
    skipped = {"skipped": str(ends.count("skipped"))}
    suite_element = Xml.SubElement(root, "testsuite", {"name": suite, **counts, **skipped})
    for case in cases:
        attributes = {"classname": case.group, "name": case.name}
        attributes = {key: replace_controls(name) for key, name in attributes.items()}
        sentence = replace_controls(case.sentence)
        element = Xml.SubElement(suite_element, "testcase", attributes)
        if case.end == "system-out":
            Xml.SubElement(element, case.end).text = sentence
        else:
            type_attribute = {} if case.end == "skipped" else {"type": case.state}
            Xml.SubElement(element, case.end, {"message": sentence, **type_attribute})
    Xml.indent(root)
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{head}\n{Xml.tostring(root, encoding='unicode')}\n"
