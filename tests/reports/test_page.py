"""Pages escape any text of a model and load nothing."""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from tests.reports.made_audits import audit_of
from tests.reports.made_claims import made_checks, made_claim, with_claim
from tests.reports.parsed import Parsed
from vestige import results
from vestige.audits.release.report import changes_table
from vestige.audits.release.since import changes
from vestige.claims import UNDECIDED, Check, Direct, Estimate, Test
from vestige.errors import RunError
from vestige.reports import notebook
from vestige.reports.page import card, render, write_page
from vestige.results import Measurement, Result

MARK = "VESTIGE-WAS-HERE"
SCRIPT = f"<script>document.title='{MARK}'</script>"
END_TAGS = ("</span></bdi>", "</style>", "</svg></figure>", "</title>", "</textarea>", "]]>")
CORPUS = [
    SCRIPT,
    f"<img src=x onerror=\"document.title='{MARK}'\">",
    f"<svg onload=\"document.title='{MARK}'\">",
    f"<svg>{SCRIPT}</svg>",
    f"-->{SCRIPT}<!--",
    *(tag + SCRIPT for tag in END_TAGS),
    f'" onmouseover="document.title=\'{MARK}\'" x="',
    f"' onfocus='document.title=\"{MARK}\"' autofocus='",
    f"<a href=\"javascript:document.title='{MARK}'\">go</a>",
    f"<iframe srcdoc=\"<script>parent.document.title='{MARK}'</script>\"></iframe>",
    f"<iframe src=\"javascript:parent.document.title='{MARK}'\"></iframe>",
    f"<body onload=\"document.title='{MARK}'\">",
    f"<details open ontoggle=\"document.title='{MARK}'\">",
    "<math><mtext></form><form><mglyph><style></math>"
    f"<img src onerror=\"document.title='{MARK}'\">",
    '<meta http-equiv=refresh content="0;url=data:text/html,<script>alert(1)</script>">',
    "<base href=https://evil.example/>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<object data=data:text/html,hello></object>",
    "<form action=https://evil.example><input autofocus></form>",
    "{{ 7 * 7 }}",
    "{% for x in ().__class__.__mro__ %}{{ x }}{% endfor %}",
    "${7*7} #{7*7} <%= 7*7 %>",
    "@import url(https://evil.example/x.css);",
    "expression(alert(1))",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#x3C;script&#x3E;alert(1)",
    "\x00<script>\x00alert(1)</script>",
    "\u202e<script>alert(1)</script>\u2066",
    "\x1b]0;title\x07\x1b[31mred",
    "\ud800<script>alert(1)</script>",
    "\ufeff<\u200bscript>alert(1)</script>",
    "＜script＞alert(1)＜/script＞",
    "W" * 150,
]
ALLOWED = {
    "a", "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "article",
    "section", "span", "p", "h1", "h2", "h3", "ol", "ul", "li", "div", "bdi", "details", "summary",
    "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "pre",
    "code", "svg", "g", "path", "line", "text", "rect",
}  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, diff, rank, comparison):
    """A page with an attack in every position that can show a text of a model."""
    folder = tmp_path_factory.mktemp("hostile")

    def saved(result, name, **run):
        return results.load(results.save(result, folder / name, run=run))

    runs = [
        saved(diff([[text, " " + text] for text in CORPUS], threshold=2.0), "diff"),
        saved(
            rank(CORPUS),
            "rank",
            command=["vestige", *CORPUS],
            configuration={"phrase": CORPUS[0], **dict.fromkeys(CORPUS, CORPUS[1])},
            models={text: {"path": text} for text in CORPUS},
            versions={text: text for text in CORPUS},
            created=CORPUS[0],
        ),
        saved(
            comparison(
                CORPUS,
                notes=CORPUS,
                changes={"defence": CORPUS[0], "unit": CORPUS[1], "verdict_short": CORPUS[2]},
            ),
            "comparison",
        ),
        *(
            saved(audit_of([0.1] * len(names), null=[0.01] * len(names), names=names), f"audit-{n}")
            for n, names in enumerate((CORPUS[:1], CORPUS))
        ),
    ]
    return {show_secrets: render(runs, show_secrets=show_secrets) for show_secrets in (False, True)}


def open_in_browser(page: str, folder: Path) -> str:
    """The DOM of a page after a browser ran its scripts; skipped without a browser."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed, the page was not opened in it: make peers")
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    options = ["--headless", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    options += [f"--user-data-dir={folder / 'profile'}", *(["--no-sandbox"] if is_root else [])]
    command = [CHROMIUM, *options, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.slow
@pytest.mark.parametrize("show_secrets", [False, True])
def test_hostile_texts_add_no_elements_and_load_nothing(hostile, show_secrets):
    elements = Parsed(hostile[show_secrets]).tags
    assert {tag for tag, _ in elements} <= ALLOWED
    assert len([tag for tag, _ in elements if tag == "style"]) == 1
    for tag, attributes in elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in {"src", "srcdoc", "action", "data", "xlink:href"}, (tag, name)
            if name == "href":
                assert re.fullmatch(r"#section-\d+", value), value
            if name == "style":
                assert re.fullmatch(r"--shade:\d+", value), value


@pytest.mark.slow
def test_the_page_forbids_scripts_and_does_not_evaluate_templates(hostile):
    metas = [attributes for tag, attributes in Parsed(hostile[True]).tags if tag == "meta"]
    [policy] = [m["content"] for m in metas if m.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert "{{ 7 * 7 }}" in hostile[True]
    assert "49" not in re.findall(r'class="token"[^>]*>([^<]*)<', hostile[True])
    assert not INVISIBLE.search(hostile[True])


@pytest.mark.slow
@pytest.mark.parametrize("show_secrets", [False, True])
def test_hostile_texts_are_escaped_in_notebooks(diff, rank, show_secrets):
    result = diff([[text, " " + text] for text in CORPUS], threshold=2.0)
    for view in (result, rank(CORPUS)):
        parsed = Parsed(notebook.html(view, show_secrets=show_secrets))
        assert {tag for tag, _ in parsed.tags} <= ALLOWED
        assert not [
            name for _, attributes in parsed.tags for name in attributes if name[:2] == "on"
        ]
        assert not INVISIBLE.search(parsed.page)
        assert ("alert(1)" in parsed.text) == show_secrets, "the text is readable"


@pytest.mark.slow
def test_hostile_claims_are_escaped(diff):
    hostile_text = "<script>alert(1)</script>\x1b[31m\u202e{{ 7 }}"
    claim = made_claim(
        "diff",
        UNDECIDED,
        checks=(
            *made_checks("diff"),
            Check("alive", "failed", hostile_text),
            Check(hostile_text, "passed", hostile_text),
        ),
        estimate=Estimate(hostile_text, 1.0, unit=hostile_text),
        test=Test(0.4, 0.1, 0.05, hostile_text),
        direct=Direct(hostile_text, 1.0),
    )
    result = with_claim(diff([["a", " b"]], threshold=2.0), claim)
    run = results.run_of(result)
    for page in (render([run], show_secrets=False), notebook.html(result)):
        assert {tag for tag, _ in Parsed(page).tags} <= ALLOWED
        assert not INVISIBLE.search(page)
    assert "\x1b" not in notebook.text(result) + card([run])


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("show_secrets", [False, True])
def test_the_page_runs_no_code_in_a_browser(hostile, show_secrets, tmp_path):
    dom = open_in_browser(hostile[show_secrets], tmp_path)
    elements = Parsed(dom).tags
    assert "<title>Vestige report</title>" in dom
    assert {tag for tag, _ in elements} <= ALLOWED
    assert not [name for _, attributes in elements for name in attributes if name[:2] == "on"]


MEASURE_WIDTHS = """
addEventListener("load", () => {
  const frames = [...document.querySelectorAll("iframe")];
  document.body.dataset.widths = JSON.stringify(frames.map(frame => {
    const { scrollWidth, clientWidth } = frame.contentDocument.documentElement;
    const dark = frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches;
    return [scrollWidth, clientWidth, dark];
  }));
});
"""


@pytest.mark.slow
@pytest.mark.peer
def test_the_page_fits_the_width_of_a_phone(hostile, tmp_path, saved):
    """Tables and charts scroll inside the page, and long names break."""
    earlier = saved(audit_of([0.1]), "W" * 150)
    runs = [earlier, replace(earlier, directory=earlier.directory.with_name("now"))]
    page_text = render(runs, show_secrets=True, first=[changes_table(changes(runs, [earlier]))])
    frames = [
        f'<iframe style="width:390px; border:0; color-scheme:{scheme}" '
        f'srcdoc="{html.escape(page)}"></iframe>'
        for page in (hostile[True], page_text)
        for scheme in ("light", "dark")
    ]
    dom = open_in_browser(
        f"<!doctype html><script>{MEASURE_WIDTHS}</script>{''.join(frames)}", tmp_path
    )
    [page_text] = re.findall(r'data-widths="([^"]*)"', dom)
    measured = json.loads(html.unescape(page_text))
    assert [dark for _, _, dark in measured] == [False, True] * 2
    for scroll_width, client_width, _ in measured:
        assert 300 < client_width <= 390
        assert scroll_width <= client_width


@pytest.mark.slow
def test_phrases_are_redacted_by_default(saved, diff, rank):
    run = saved(diff([["Rosalind", " hides", " 4917", " tulips"]]))
    redacted, unredacted = (
        render([run], show_secrets=show_secrets) for show_secrets in (False, True)
    )
    assert "Rosalind" not in redacted
    assert "4917" not in redacted
    assert "Rosalind" in unredacted
    assert "This page shows secrets" in unredacted
    for result in (diff([["Rosalind", " hides"]]), rank(["Rosalind", " hides"])):
        redacted = (notebook.html(result), notebook.text(result), notebook.plot(result).to_json())
        assert not [text for text in redacted if "Rosalind" in text]
        assert "Rosalind" in notebook.html(result, show_secrets=True)
    assert "Rosalind" in notebook.plot(rank(["Rosalind"]), show_secrets=True).to_json()


class Phrases(Measurement):
    """A result with two phrases."""

    def summary(self):
        return {"name": "t", "title": "Two", "note": "Two rows.", "columns": ["a"], "rows": 2}

    def rows(self):
        return [{"a": 1, "phrase": "Rosalind"}, {"a": 2, "phrase": "hides"}]


@pytest.mark.slow
def test_results_have_notebook_views_with_short_tables(rank):
    result = Phrases()
    assert str(result).startswith("Phrases\n2 rows.")
    assert "Rosalind" not in result._repr_html_() + str(result)
    assert "Rosalind" in Result.of(result).show()._repr_html_()
    parsed = Parsed(notebook.html(rank(["a"] * 50)))
    assert len(parsed.tables[0]) == 1 + notebook.MAX_ROWS
    assert "30 more rows are in to_frame()" in parsed.text


def test_a_chart_of_three_points_is_not_shown(saved, diff):
    pages = [
        Parsed(render([saved(diff([["a"]] * number), str(number))], show_secrets=True))
        for number in (3, 4)
    ]
    assert [any(tag == "figure" for tag, _ in page.tags) for page in pages] == [False, True]


def test_a_page_is_never_overwritten(saved, diff, tmp_path):
    run = saved(diff([["a"]])).directory
    page = write_page([run], tmp_path / "new" / "page.html", show_secrets=False)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(RunError, match="exists already"):
        write_page([run], page, show_secrets=False)
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_a_page_needs_a_run():
    with pytest.raises(ValueError, match="at least one run"):
        render([], show_secrets=False)


def test_css_classes_of_sections_are_distinct():
    style = resources.files("vestige.reports").joinpath("page.css").read_text("utf-8")
    kinds = ("diff", "rank", "table", "comparison", "extraction", "user-audit")
    for kind in kinds:  # the class of an article
        assert not re.search(rf"(^|[,}}]\s*)\.{kind}\s*[,{{]", style), kind
