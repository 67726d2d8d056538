"""A report's last column as JUnit XML: one suite a matrix, one test case a row."""

from __future__ import annotations

from xml.etree import ElementTree

from .markdown import difference_lines
from .report import Ending, Report, Result

TAGS = {
    Ending.FAILED: "failure",
    Ending.BROKEN: "error",
    Ending.SKIPPED: "skipped",
    Ending.DOES_NOT_APPLY: "skipped",
    Ending.NOT_PROVEN: "skipped",
}


def render_junit(report: Report) -> str:
    """XML text. What could not be shown is `skipped` with its reason, never left out."""
    root = ElementTree.Element("testsuites", name=report.title)
    for matrix in report.shows:
        rows = report.rows_of(matrix)
        results = [row.after or Result(ending=Ending.SKIPPED, detail="not run") for row in rows]
        tags = [TAGS.get(result.ending) for result in results]
        counts = {"tests": str(len(rows))}
        counts |= {f"{tag}s" if tag != "skipped" else tag: str(tags.count(tag)) for tag in set(TAGS.values())}
        suite = ElementTree.SubElement(root, "testsuite", {"name": matrix, "timestamp": report.made_at, **counts})
        for row, result, tag in zip(rows, results, tags, strict=True):
            case = ElementTree.SubElement(
                suite, "testcase", classname=matrix, name=row.case, time=f"{result.duration_s:.3f}"
            )
            if tag:
                message = result.detail if tag != "skipped" else f"{result.ending.value}: {result.detail}"
                found = ElementTree.SubElement(case, tag, message=_printable(message))
                if result.difference:
                    found.text = _printable("\n".join(difference_lines(result.difference)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """XML 1.0 has no control characters but tab and line ends."""
    return "".join(char if char >= " " or char in "\t\n" else f"\\x{ord(char):02x}" for char in text)
