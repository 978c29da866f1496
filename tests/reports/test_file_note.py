"""The box for a data-protection officer names model and texts by whole hashes, and no place."""

from vestige.reports.blocks import file_note

HASHES = {role: f"{place:064x}" for place, role in enumerate(("target", "base", "inner", "texts"))}
RUN = {
    "created": "2026-01-02T03:04:05+00:00",
    "versions": {"vestige": "0.1"},
    "models": {
        "target": {
            "path": "/home/ann/secret case/tuned\x1b[31m/",
            "sha256": HASHES["target"],
            "parameters": 1_000,
            "base": {"path": "x", "sha256": HASHES["inner"]},
        },
        "base": {"path": None, "sha256": HASHES["base"]},
    },
    "data": {"texts": {"path": "mine.jsonl", "documents": 40, "sha256": HASHES["texts"]}},
}
WORDS = {
    "asked": "Whether.",
    "models": {"target": "the model", "base": "its base"},
    "data": {"texts": "the texts", "used": "known ones"},
    "found": "Yes.",
    "unsaid": ("Why.",),
}


def test_it_says_what_was_asked_of_what_with_what_and_what_was_found():
    box = file_note(RUN, **WORDS)
    assert [name for name, _ in box.facts] == [
        "Question", "About the model", "About its base", "With the texts", "Made", "Finding",
    ]  # fmt: skip
    told = dict(box.facts)
    assert told["With the texts"] == f"40 texts, SHA-256 {HASHES['texts']}"
    assert all(HASHES[name] in told["About the model"] for name in ("target", "inner"))
    assert told["About its base"] == f"a model in memory, SHA-256 {HASHES['base']}"
    assert told["Made"] == "on 2026-01-02 by Vestige 0.1"
    assert box.unsaid == ("Why.",)


def test_it_names_no_directory_and_nothing_of_it_reaches_a_terminal():
    told = " ".join(text for _, text in file_note(RUN, **WORDS).facts)
    assert "ann" not in told
    assert "tuned" in told
    assert "\x1b" not in told


def test_a_run_without_a_record_has_the_question_and_the_answer():
    assert file_note({}, **WORDS).facts == (
        ("Question", "Whether."),
        ("Finding", "Yes."),
    )
