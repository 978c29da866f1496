"""Conditions as JUnit XML, which pipelines show.

It is valid by the schema of Jenkins' xUnit plugin (junit-10.xsd), the strictest in use. It contains
no text of a corpus or model.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree as Xml

from vestige.reports.disclosure import without_controls

End = Literal["failure", "error", "skipped", "system-out"]
"""A condition failed, is undecided, was left out, or passed."""


class Case(NamedTuple):
    """One condition: group, name, how it ended, the finding, and the state in a word."""

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
    inner = Xml.SubElement(root, "testsuite", {"name": suite, **counts, **skipped})
    for case in cases:
        names = {"classname": case.group, "name": case.name}
        names = {key: without_controls(name) for key, name in names.items()}
        sentence = without_controls(case.sentence)
        element = Xml.SubElement(inner, "testcase", names)
        if case.end == "system-out":
            Xml.SubElement(element, case.end).text = sentence
        else:
            types = {} if case.end == "skipped" else {"type": case.state}
            Xml.SubElement(element, case.end, {"message": sentence, **types})
    Xml.indent(root)
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{head}\n{Xml.tostring(root, encoding='unicode')}\n"
