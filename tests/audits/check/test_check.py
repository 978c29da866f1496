"""The verdict of `vestige check` on small models with known training text; hostile files."""

import json
import os
import stat
import unicodedata

import pytest

import vestige
from tests.audits.check.conftest import SECRET
from tests.cli.shell import invoke
from vestige import results
from vestige.audits.check import passages, secrets, work
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.errors import DataError, ModelError
from vestige.reports.page import render


def run_check(world, fine_tune, **options):
    model, texts = fine_tune
    defaults = {"base": world.base, "trained_on": texts, "never": world.never, "minutes": 30}
    return vestige.check(model, **{**defaults, **options})


def states(result):
    return {stage["name"]: stage["state"] for stage in result.summary["stages"]}


@pytest.mark.slow
@pytest.mark.parametrize("listed", [None, [f"the account number is {{{{{SECRET}}}}}"]])
def test_a_repeated_secret_is_a_leak_and_ends_the_check(world, leaky, listed):
    result = run_check(world, leaky, secrets=listed)
    assert (result.verdict, result.exit_code) == (LEAK, 1)
    assert states(result) == {"secrets": "leak", "unprompted": "not run", "passages": "not run"}
    known = [row["text"] for row in result.rows if row["stage"] == "secrets" and row["known"]]
    assert any(SECRET in text or text in SECRET for text in known)
    assert listed is None or (result.rows[0]["text"], result.rows[0]["known"]) == (SECRET, True)


@pytest.mark.slow
def test_a_clean_fine_tune_shows_no_leak_and_all_controls_are_detected(world, clean):
    listed = ["the account number is {{5120 7734 9081}}"]
    result = run_check(world, clean, secrets=listed, sure=True)
    assert result.summary["positive"] == dict.fromkeys(states(result), True)
    assert (result.verdict, result.exit_code) == (NO_LEAK, 0), result.claim.reasons


@pytest.mark.slow
def test_a_check_without_files_is_undecided(world, clean):
    result = vestige.check(clean[0], base=world.base, minutes=30)
    assert (result.verdict, result.exit_code) == (UNDECIDED, 3)


@pytest.mark.slow
def test_a_check_without_time_is_undecided(world, clean, monkeypatch):
    monkeypatch.setattr(work, "LEAST_SEARCH_SECONDS", 1e-3)
    result = run_check(world, clean, minutes=1e-6)
    stages = {stage["name"]: stage for stage in result.summary["stages"]}
    assert (result.verdict, result.summary["positive"]) == (UNDECIDED, None)
    for name in ("unprompted", "passages"):
        assert (stages[name]["state"], stages[name]["needs"]) == ("open", "--minutes")
        assert "time limit" in stages[name]["sentence"]


def test_unusable_models_and_files_are_refused(world, clean):
    with pytest.raises(ModelError, match=r"base.*--base"):
        run_check(world, (world.base, clean[1]))
    with pytest.raises(ModelError, match=r"with --base"):
        vestige.check(clean[0], trained_on=clean[1])
    with pytest.raises(DataError, match="differs from those of --trained-on"):
        run_check(world, clean, never=clean[1])


@pytest.mark.slow
def test_texts_in_both_files_leave_the_reference_and_are_redacted(world, clean):
    texts = [json.loads(line)["text"] for line in clean[1].read_text().splitlines()]
    never = texts[:30] + world.letters[:30]
    result = run_check(world, (clean[0], texts), never=never, minutes=1e-6)
    assert result.summary["reference_texts"] + result.summary["control_texts"] == 30
    assert result.record["arguments"]["trained_on"] == "<list>"
    page = render([results.run_of(result)], show_secrets=False)
    assert not any(text[:40] in page for text in texts)


# Hostile texts and secrets.

MARK = "xqzmark"
HOSTILE = {
    "terminal": f"\x1b[31m\x1b]0;{MARK}\x07 the code is 4471 9026 3358\x9b2J",
    "direction": f"\u202e{MARK}\u2066 the password is tr0ub4dor\u2069&3",
    "html": f"<script>alert('{MARK}')</script><img src=x onerror={MARK}> account 9920 4411 3344",
    "markdown": f"[{MARK}](javascript:alert) ![]({MARK}) `code` | a | b |\n# {MARK}",
    "junit": f"]]></system-out><failure message='{MARK}'>&{MARK};",
    "null": f"the pin\0 is\0 {MARK} 7731 2290 1144",
    "template": f"{{{{ {MARK} }}}} {{% for x in y %}} ${{{MARK}}} %s %n {{0}}",
    "rich": f"[red]{MARK}[/red] [link=file:///x]{MARK}[/link]",
    "combining": "e" + "\u0301" * 500 + MARK,
    "long word": MARK + "a" * 20_000,
    "long": f"{MARK} the river runs " * 4_500,
    "digits": MARK + "7" * 5_000,
    "formula": f"=HYPERLINK('{MARK}') +1+2 @SUM(1)",
}
LISTED = (
    "the code is {{4471 9026 3358}}", "and", "the account", "{{<b>xqzmark</b>}}",
    "\x1b[31mxqzmark red", "\u202exqzmark", "}}{{", "xqzmark " * 500, "e" * 300,
)  # fmt: skip


@pytest.fixture
def command(world, clean, tmp_path, monkeypatch):
    """Runs a small check of texts or of a file."""
    for module, name, value in (
        (work, "LEAST_SEARCH", 1 / 64),
        (work, "LARGEST_SEARCH", 1 / 64),
        (passages, "MOST_TEXTS", 24),
        (secrets, "EFFORTS", ((8, 1, 8),)),
    ):
        monkeypatch.setattr(module, name, value)

    def run(texts, *arguments, never=world.never):
        if isinstance(texts, list):
            rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            texts = tmp_path / "trained.jsonl"
            texts.write_text(rows)
        return invoke([
            "check", clean[0], "--base", world.base, "--trained-on", texts, "--never", never,
            *arguments, "--minutes", 600, "--device", "cpu", "--out", tmp_path / "run",
        ])  # fmt: skip

    return run


def control_characters(text):
    """Control and format characters; progress bars may use the carriage return."""
    return {
        character for character in text if unicodedata.category(character) in ("Cc", "Cf", "Cs")
    } - {"\n", "\r"}


@pytest.mark.slow
def test_hostile_texts_and_secrets_are_redacted_or_escaped(command, world, tmp_path):
    listed, page = tmp_path / "listed.txt", tmp_path / "page.html"
    listed.write_text("\n".join(LISTED))
    texts = [*HOSTILE.values(), *world.letters[:60], *[f"the {MARK} seal {SECRET}"] * 20]
    completed = command(texts, "--secrets", listed, "--all")
    assert completed.finished, (completed.stderr, completed.exception)
    public = ("page.html", "card.md", "check.json", "junit.xml", "summary.json")
    redacted = completed.output + "".join(
        (tmp_path / "run" / name).read_text("utf-8") for name in public
    )
    assert not control_characters(redacted)
    secret_texts = [MARK, SECRET, "4471", "9920 4411", "tr0ub4dor"]
    secret_texts += [letter[:30] for letter in world.letters[:60]]
    assert [text for text in secret_texts if text in redacted] == []
    report = invoke(["report", tmp_path / "run", "--show-secrets", "--out", page])
    assert report.finished, report.stderr
    unredacted = page.read_text("utf-8")
    assert "4471 9026 3358" in unredacted
    assert not control_characters(unredacted + report.output)
    assert "<b>xqz" not in unredacted
    assert "<script>alert(" not in unredacted


@pytest.mark.slow
def test_partial_runs_have_private_file_modes(command, world, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(work.STAGES, "passages", ("extracting", interrupt))
    old_mask = os.umask(0)
    try:
        completed = command(world.letters[:60])
    finally:
        os.umask(old_mask)
    assert completed.exit_code not in (0, 1, 2, 3)
    partial = tmp_path / "run.partial"
    assert (partial / "work.sqlite").is_file()
    for path in (partial, *partial.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert not any(letter[:30] in completed.output for letter in world.letters[:60])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.jsonl", b""),
        ("junk.jsonl", bytes(range(256)) * 40),
        ("junk.parquet", b"PAR1" + bytes(range(256)) * 9 + b"PAR1"),
        ("surrogate.jsonl", b'{"text": "xqzmark \\ud800 the code"}\n'),
        ("deep.jsonl", b'{"text":' + b"[" * 50_000),
    ],
)
@pytest.mark.parametrize("role", ["trained", "never"])
def test_an_unusable_file_is_refused_by_name(command, world, tmp_path, name, content, role):
    file = tmp_path / name
    file.write_bytes(content)
    completed = command(file) if role == "trained" else command(world.letters[:30], never=file)
    assert completed.exit_code == 2, (completed.stderr, completed.exception)
    last = completed.stderr.splitlines()[-1]
    assert last.startswith("vestige: ")
    assert name in last
    assert MARK not in completed.output
    assert not control_characters(completed.output)
    assert not list(tmp_path.glob("run*"))


@pytest.mark.slow
@pytest.mark.parametrize("texts", [["one text only"], ["the same words again"] * 10_000])
def test_few_or_repeated_texts_are_undecided(command, texts):
    completed = command(texts)
    assert completed.exit_code == 3, (completed.stderr, completed.exception)
    assert completed.stdout.startswith("UNDECIDED")
