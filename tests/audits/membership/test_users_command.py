"""`vestige membership --unit user` finds whose text was used; services may misbehave."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vestige import results
from vestige.audits.membership import service as service_module
from vestige.audits.membership.membership import membership
from vestige.audits.membership.user_texts import NonMembers, users_needed
from vestige.models.remote import retry as retries
from vestige.store import Store

DOCS = Path(__file__).parents[3] / "docs"
WORDS, LIKED, EACH, LENGTH = 120, 12, 7, 12
CHAIN = np.random.default_rng(5).dirichlet(np.full(WORDS, 0.3), WORDS)
OWN = ("--user", "who", "--device", "cpu")
TINY = ("--epochs", 3, "--hidden-size", 16, "--learning-rate", 0.02, "--batch-size", 20)

SERVICES = """
import time
from pathlib import Path
from tests.models.narrowed import narrow
from vestige.models.checkpoints import load_model

model = narrow(load_model(Path(__file__).with_name("target"), device="cpu"), k=30)
calls = 0

def well(contexts):
    return model.likeliest(contexts)

def moody(contexts):
    global calls
    calls += 1
    if calls % 9 == 3:
        raise ConnectionError("private: " + " ".join(contexts[0].words))
    return model.likeliest(contexts)

def dead(contexts):
    raise ConnectionError("private: " + " ".join(contexts[0].words))

def slow(contexts):
    global calls
    calls += 1
    if calls == 2:
        time.sleep(1.5)
    return model.likeliest(contexts)

def scant(contexts):
    return [[*words[:4], "neverheard"] for words in model.likeliest(contexts)]

def leaves(contexts):
    raise SystemExit(0)

def late(contexts):
    global calls
    calls += 1
    first = calls == 1
    time.sleep(1.2 if first else 0.7 if calls == 2 else 0)
    return model.likeliest(contexts)

def loud(contexts):
    print("hello")
    return model.likeliest(contexts)

def long(contexts):
    global calls
    calls += 1
    return model.likeliest(contexts) if calls < 3 else [["x" * 5_000_000] * 30] * len(contexts)

def shy(contexts):
    return [None if len(c.words) == 4 else a for c, a in zip(contexts, model.likeliest(contexts))]
"""


def texts_of(users, *, seed):
    """A Markov chain for everybody, in which each user likes some words."""
    chance = np.random.default_rng(seed)
    rows = []
    for user in users:
        likes = np.ones(WORDS)
        likes[chance.choice(WORDS, LIKED, replace=False)] = 16
        moves = (CHAIN * likes / (CHAIN * likes).sum(axis=1, keepdims=True)).cumsum(axis=1)
        for _ in range(EACH):
            place, words = int(chance.integers(WORDS)), []
            for lot in chance.random(LENGTH):
                place = min(int(np.searchsorted(moves[place], lot)), WORDS - 1)
                words.append(f"w{place}")
            rows.append({"who": user, "text": " ".join(words), "before": " ".join(words[::-1])})
    return rows


def put(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def world(tmp_path_factory, shell):
    """Members and others to audit, people known to be out, and a target that read the members."""
    root = tmp_path_factory.mktemp("audit")
    members = texts_of([f"member {n}" for n in range(6)], seed=1)
    others = texts_of([f"other {n}" for n in range(6)], seed=2)
    put(root / "members.jsonl", members)
    put(root / "both.jsonl", members + others)
    put(root / "reference.jsonl", texts_of([f"known {n:02}" for n in range(45)], seed=3))
    mine = [row for row in members if row["who"] == "member 3"]
    put(root / "mine.jsonl", [{"text": row["text"]} for row in mine])
    (root / "services.py").write_text(SERVICES)
    # A vocabulary of the members' text only would leave half of the others' words out.
    anybody = texts_of(["anybody"] * 60, seed=4)
    put(root / "all.jsonl", anybody)
    # Of the members alone it would learn nothing that predicts others, and would be undecided.
    put(root / "read.jsonl", anybody + 3 * members)
    for words in (
        ("train", root / "all.jsonl", "--out", root / "words", "--epochs", 1, *TINY[2:4]),
        ("train", root / "read.jsonl", "--vocabulary", root / "words", "--out", root / "target",
         "--hold-out", 0, "--epochs", 20, *TINY[2:]),
    ):  # fmt: skip
        done = shell(*words, "--task", "next-word", *OWN)
        assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture
def audit(world, shell, tmp_path, monkeypatch):
    """Run the verb; give the shell's answer and the run."""
    monkeypatch.syspath_prepend(str(world))
    monkeypatch.setattr(
        retries.RetryPolicy, "pauses", lambda retry: [0.0] * (retry.attempts - 1) + [None]
    )
    sys.modules.pop("services", None)

    def run(model, texts, *words, out="out", fails=False, share=True):
        words += ("--shadow-dir", world / "shadows") * share
        model = model if ":" in model else world / model
        given = ("--texts", world / texts, "--reference", world / "reference.jsonl")
        words = ("--unit", "user", *given, *OWN, *words, "--out", tmp_path / out)
        done = shell("membership", model, *words)
        assert done.exit_code == 2 if fails else done.finished, done.stderr
        return done, None if fails else results.load(tmp_path / out)

    return run


def known_and_own(run):
    return [row["score"] for row in run.rows if row["kind"] in ("audited", "known out")]


def audited(run):
    return [row for row in run.rows if row["kind"] == "audited"]


@pytest.mark.parametrize("shadows", [("--shadows", 0), ("--shadows", 4, *TINY)])
def test_members_are_found_and_others_are_not(audit, shadows):
    _, run = audit("target", "both.jsonl", *shadows, "--alpha", 0.1)
    called = {row["user"] for row in audited(run) if row["called"]}
    members = {f"member {n}" for n in range(6)}
    assert len(called & members) >= 5
    assert len(called - members) <= 1
    assert run.summary["verdict"] == "leak"
    assert run.summary["references"] == shadows[1]
    assert (run.summary["k"], run.summary["vocab_size"]) == (WORDS + 2, WORDS + 2)


def test_one_person_gets_one_verdict(audit):
    done, run = audit("target", "mine.jsonl", "--shadows", 0)
    assert done.stdout.startswith("LEAK  ")
    assert "of 23 non-members score as high" in done.stdout
    assert [row["user"] for row in audited(run)] == ["me"]
    assert "count as one person's, 'me'" in done.stderr
    assert run.result == "UserAudit"


def test_names_are_blocks_unless_wanted_and_never_on_stdout_of_json(audit):
    done, _ = audit("target", "both.jsonl", "--shadows", 0)
    assert "member 3" not in done.stdout
    shown, _ = audit("target", "both.jsonl", "--shadows", 0, "--show-secrets", out="shown")
    assert "member 3" in shown.stdout
    data, run = audit("target", "both.jsonl", "--shadows", 0, "--json", out="json")
    assert json.loads(data.stdout) == run.summary


def test_an_audit_becomes_a_page(audit, shell, tmp_path):
    audit("target", "both.jsonl", "--shadows", 0)
    assert shell("report", tmp_path / "out", "--out", tmp_path / "page.html").finished
    assert "member 3" not in (tmp_path / "page.html").read_text("utf-8")


def test_another_audit_with_the_same_shadows_trains_nothing(audit, tmp_path):
    audit("target", "both.jsonl", "--shadows", 2, *TINY, out="first", share=False)
    kept = ("--shadow-dir", tmp_path / "first.shadows")
    done, run = audit(
        "target", "both.jsonl", "--shadows", 2, *TINY, *kept, "--top-k", 9, share=False
    )
    assert "trained shadow" not in done.stderr
    assert not (tmp_path / "out.shadows").exists()
    assert (run.summary["k"], run.summary["references"]) == (9, 2)


def test_processes_and_other_shapes_train_shadows_too(audit):
    words = ("--shadows", 2, "--other-shapes", "--epochs", 1, "--processes", 2)
    _, run = audit("target", "mine.jsonl", *words)
    settings = run.run["configuration"]["shadow_models"]
    assert [model["hidden_size"] for model in settings["models"]] == list(range(64, 353, 32))
    assert run.summary["references"] == 2


def test_shadows_learn_as_the_target_did(audit):
    done, run = audit("target", "mine.jsonl", "--shadows", 2)
    training = run.run["configuration"]["shadow_models"]["training"]
    assert (training["epochs"], training["learning_rate"]) == (20, 0.02)
    assert "for 20 epochs" in done.stderr
    [shape] = run.run["configuration"]["shadow_models"]["models"]
    assert (shape["name"], shape["hidden_size"]) == ("LSTMConfig", 16)


def test_the_epochs_that_are_said_are_those_that_shadows_learn_for(audit):
    done, run = audit("target", "mine.jsonl", "--shadows", 2, "--epochs", 3)
    assert run.run["configuration"]["shadow_models"]["training"]["epochs"] == 3
    assert "target was, but with --epochs 3, for 3 epochs" in done.stderr
    assert "for 20 epochs" not in done.stderr


def test_help_and_guides_say_how_many_people_it_takes():
    needed = users_needed(0.05)
    assert f"users need {needed} reference users" in " ".join(membership.__doc__.split())
    guide = (DOCS / "guides" / "my-text.md").read_text("utf-8")
    assert f"Below {needed} no audit can show" in " ".join(guide.split())


def test_whom_shadows_have_read_is_compared_with_nobody(audit, world, tmp_path):
    """An audited user and a compared one exchange their texts, and nothing else changes."""
    _, first = audit("target", "mine.jsonl", "--shadows", 2, *TINY)
    rows = [json.loads(line) for line in (world / "reference.jsonl").read_text().splitlines()]
    names = sorted({row["who"] for row in rows})
    compared = NonMembers.drawn(names, seed=0).compared
    mine = [json.loads(line)["text"] for line in (world / "mine.jsonl").read_text().splitlines()]
    theirs = [row["text"] for row in rows if row["who"] == compared[0]]
    texts = iter(mine)
    for row in rows:
        row["text"] = next(texts) if row["who"] == compared[0] else row["text"]
    put(tmp_path / "reference.jsonl", rows)
    put(tmp_path / "mine.jsonl", [{"text": text} for text in theirs])
    swapped = ("--reference", tmp_path / "reference.jsonl", "--texts", tmp_path / "mine.jsonl")
    done, second = audit("target", "mine.jsonl", "--shadows", 2, *TINY, *swapped, out="second")
    assert "trained shadow" not in done.stderr
    before, after = (sorted(known_and_own(run)) for run in (first, second))
    assert len(before) == 24
    # References are drawn by lot for each place, so that one's own may be others.
    assert len({round(x, 9) for x in before} & {round(x, 9) for x in after}) >= 22


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("--queries", 3, "--select", "random"), 3 * LENGTH),
        (("--queries", 3, "--select", "rare"), 3 * LENGTH),
        (("--calls", 20, "--select", "rare"), 20),
        (("--calls", 20), 20),
        (("--queries", 3), 3 * LENGTH),
    ],
)
def test_everybody_is_asked_about_as_little(audit, words, most):
    _, run = audit("target", "both.jsonl", "--shadows", 2, *TINY, "--top-k", 30, *words)
    assert all(0 < row["words"] <= most for row in audited(run))
    usual = {"--calls": "informative", "--queries": "random"}
    assert run.summary["select"] == (words[3] if len(words) > 3 else usual[words[0]])


def test_a_reference_without_users_is_split_into_random_users(audit):
    _, run = audit("target", "mine.jsonl", "--person", "ann", "--shadows", 0, "--random-users", 40)
    groups = [run.summary[f"{name}_on"] for name in ("counted", "fitted", "calibrated")]
    assert groups == [10, 10, 20]
    assert [row["user"] for row in audited(run)] == ["ann"]


@pytest.mark.parametrize("task", ["translation", "dialogue"])
def test_models_with_sources_are_audited_alike(audit, shell, world, tmp_path, task):
    sources = ("--source", "before")
    done = shell(
        "train", world / "members.jsonl", "--task", task, *sources, *OWN, "--hold-out", 0,
        "--epochs", 1, "--hidden-size", 8, "--out", tmp_path / "pairs",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    _, run = audit(str(tmp_path / "pairs"), "both.jsonl", *sources, "--shadows", 2, "--epochs", 1)
    assert run.run["configuration"]["task"] == task
    assert run.summary["references"] == 2


SERVICE = ("--top-k", 30, "--shadows", 0, "--vocabulary-size", 200)


def answers_of(partial):
    """The contexts and answers that an unfinished audit keeps, and the statistics of calls."""
    with Store(partial / "work.sqlite") as store:
        return dict(store.part("answer/")), store["account"]


def test_a_service_finds_what_the_model_finds(audit):
    _, run = audit("services:well", "mine.jsonl", *SERVICE, "--budget", 6000)
    assert audited(run)[0]["called"]
    assert run.summary["queries"] <= 6000
    assert run.summary["queries"] + run.summary["cached"] == run.summary["words_asked"]
    assert run.summary["budget"] == 6000


def test_a_service_that_fails_now_and_then_is_asked_again(audit):
    _, run = audit("services:moody", "mine.jsonl", *SERVICE, "--calls", 40, "--budget", 9000)
    assert run.summary["failures"] == run.summary["retries"] > 0
    assert run.summary["words_unanswered"] == 0


def test_a_service_that_is_slow_is_given_up_in_time(audit):
    began = time.monotonic()
    _, run = audit("services:slow", "mine.jsonl", *SERVICE, "--calls", 40, "--timeout", 0.75)
    assert time.monotonic() - began < 60
    assert (run.summary["timeouts"], run.summary["words_unanswered"]) == (1, 0)


def test_a_service_that_never_answers_is_left_alone_soon(audit, tmp_path):
    done, _ = audit("services:dead", "mine.jsonl", *SERVICE, "--attempts", 2, fails=True)
    assert "services:dead keeps failing, by query 96 (ConnectionError" in done.stderr
    assert "private" not in done.stderr
    answers, account = answers_of(tmp_path / "out.partial")
    assert (answers, account["calls"]) == ({}, 2 * 3)
    assert not (tmp_path / "out").exists()


def test_a_service_that_leaves_ends_no_audit_in_silence(audit, tmp_path):
    told, _ = audit(
        "services:leaves", "mine.jsonl", *SERVICE, "--calls", 40, "--attempts", 1, fails=True
    )
    assert "keeps failing, by query" in told.stderr
    assert "SystemExit" in told.stderr


def test_what_a_service_prints_is_no_part_of_the_result(audit):
    told, _ = audit("services:loud", "mine.jsonl", *SERVICE, "--calls", 40, "--json")
    assert json.loads(told.stdout)["queries"] > 0
    assert "hello" in told.stderr


def test_a_call_that_was_given_up_takes_no_output_with_it(audit):
    words = ("--calls", 40, "--timeout", 0.75, "--attempts", 3, "--json")
    told, _ = audit("services:late", "mine.jsonl", *SERVICE, *words)
    assert json.loads(told.stdout)["timeouts"] == 1


def test_words_too_long_fill_no_disk_and_the_audit_goes_on_once_they_are_mended(audit, tmp_path):
    told, _ = audit("services:long", "mine.jsonl", *SERVICE, "--calls", 40, fails=True)
    assert "a word of 5,000,000 characters" in told.stderr
    assert "rerun the command: Vestige caches answers" in told.stderr
    answers, _ = answers_of(tmp_path / "out.partial")
    assert 0 < len(answers) < 64
    assert (tmp_path / "out.partial" / "work.sqlite").stat().st_size < 200_000


def test_a_service_that_is_silent_for_long_is_told_of(audit, monkeypatch):
    monkeypatch.setattr(service_module, "SILENCE", 0.01)
    told, _ = audit("services:slow", "mine.jsonl", *SERVICE, "--calls", 40)
    assert "The service has not answered for 0 s" in told.stderr


def test_what_failed_can_be_gone_on_with(audit):
    audit("services:dead", "mine.jsonl", *SERVICE, "--attempts", 1, fails=True)
    sys.modules["services"].dead = sys.modules["services"].well
    _, run = audit("services:dead", "mine.jsonl", *SERVICE)
    assert run.summary["failures"] == 3
    assert run.summary["words_unanswered"] == 0


def test_few_and_unknown_words_are_on_the_account(audit):
    _, run = audit("services:scant", "mine.jsonl", *SERVICE, "--calls", 40)
    assert run.summary["short_lists"] == run.summary["unknown_words"] == run.summary["queries"]


def test_words_without_an_answer_are_left_out_and_counted(audit):
    _, run = audit("services:shy", "mine.jsonl", *SERVICE)
    assert run.summary["refused"] > 0
    assert run.summary["words_unanswered"] > 0
    left = run.summary["words_asked"] - run.summary["words_unanswered"]
    assert sum(row["words"] for row in audited(run)) < left


def test_a_budget_that_failures_eat_up_is_never_exceeded(audit):
    _, run = audit("services:well", "mine.jsonl", *SERVICE, "--calls", 40, out="fits")
    need = run.summary["queries"]
    _, short = audit("services:moody", "mine.jsonl", *SERVICE, "--calls", 40, "--budget", need)
    assert short.summary["queries"] <= need
    assert short.summary["budget_spent"]
    assert short.summary["words_unanswered"] > 0


def test_with_shadows_a_service_is_asked_the_informative(audit):
    words = ("--top-k", 30, "--shadows", 2, *TINY, "--calls", 30, "--budget", 2500)
    _, run = audit("services:well", "mine.jsonl", *words)
    assert run.summary["select"] == "informative"
    # Of 45 people known to be out 11 are counted, and asked nothing.
    assert run.summary["words_asked"] == (45 - 11 + 1) * 30
    assert run.summary["references"] == 2


def test_nobody_is_a_member_of_a_model_that_read_none_of_them(audit):
    _, run = audit("words", "both.jsonl", "--shadows", 0)
    assert sum(row["p_value"] <= 0.1 for row in audited(run)) <= 4
    assert run.summary["called"] <= 1
