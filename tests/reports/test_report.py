"""`report` called from Python."""

import pytest

from vestige import results
from vestige.errors import RunError
from vestige.reports.report import report


class Found:
    """A result that any page can show."""

    def summary(self):
        return {"search": "beam", "score": "smoothed", "phrases": 0, "threshold": None}

    def rows(self):
        return []


@pytest.fixture
def run(tmp_path):
    made = type("Other", (Found,), {})()
    return results.save(made, tmp_path / "run", run={"command": []})


def test_one_run_or_several_become_a_page(run, tmp_path):
    page = report(run, tmp_path / "one.html")
    assert (tmp_path / "one.html").read_text("utf-8").count("<article") == 1
    assert page.summary() == {
        "page": str(tmp_path / "one.html"),
        "runs": 1,
        "show_secrets": False,
    }
    several = report([run, str(run)], str(tmp_path / "two.html"), show_secrets=True)
    assert (several.runs, several.show_secrets) == (2, True)
    with open(several, encoding="utf-8") as file:
        assert file.read().count("<article") == 2


def test_no_run_is_no_page(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        report([], tmp_path / "page.html")
    with pytest.raises(RunError, match="not a run directory"):
        report(tmp_path, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
