"""`vestige extract` of utterances finds what was planted, and shows no secret unasked."""

import json
import re

import pytest

from vestige import results
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances

SPACE = 100


@pytest.fixture(scope="module")
def trained(tmp_path_factory, shell):
    """A directory with a planted corpus, the model that read it, and one that did not."""
    root = tmp_path_factory.mktemp("nlu")
    songs = [
        Utterance((verb, f"song{i % 7}", str(i % 10)), ("O", "B-song", "B-time"), verb.title())
        for verb in ("play", "stop", "find")
        for i in range(12)
    ]
    write_utterances(Utterances.of(songs), root / "songs.jsonl")
    run = [
        ("plant", root / "songs.jsonl", "--task", "nlu", "--pattern", "pin:2", "--copies", 30,
         "--controls", 6, "--out", root / "planted"),
        ("train", root / "planted", "--task", "nlu", "--epochs", 10, "--hidden-size", 12,
         "--embedding-size", 8, "--learning-rate", 0.02, "--out", root / "trained"),
    ]  # fmt: skip
    for words in run:
        done = shell(*words, "--device", "cpu") if words[0] == "train" else shell(*words)
        assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def secret(trained):
    """The words of the planted canary."""
    manifest = SecretManifest.load(trained / "planted" / "manifest.json")
    return next(canary.secret for canary in manifest.canaries if canary.planted)


@pytest.fixture
def extract(trained, shell, tmp_path):
    def run(*words):
        out = () if "--out" in words else ("--out", tmp_path / f"out-{len([*tmp_path.iterdir()])}")
        done = shell("extract", trained / "trained", *words, *out, "--device", "cpu")
        assert done.finished, done.stderr
        return done

    return run


def test_the_planted_secret_is_found_and_the_controls_are_not(extract, trained):
    found = json.loads(extract(trained / "planted", "--json").stdout)
    assert (found["planted"], found["controls"], found["patterns"]) == (1, 6, 1)
    assert found["planted_median_rank"] <= 2
    assert found["planted_exposure"] > found["controls_exposure"] + 2
    assert found["controls_right"] == 0
    assert found["drawn"] == SPACE - 7  # every secret there is, but for ties
    assert found["p_value"] == pytest.approx(found["planted_median_rank"] / SPACE)


def test_several_models_are_asked_for_one_manifest(shell, trained, tmp_path):
    models = (trained / "trained", trained / "trained")
    more = ("--also", models[1], "--device", "cpu", "--out", tmp_path / "out")
    done = shell("extract", models[0], trained / "planted", "--controls", 40, *more)
    assert done.finished, done.stderr
    assert "In 2 models, the planted secret has rank" in done.stdout
    assert "of 40 that were" in done.stdout or "better than all 40" in done.stdout
    assert "There are too few controls" in done.stdout
    refused = shell("extract", models[0], "--pattern", "pin:2", *more[:-1], tmp_path / "other")
    assert refused.exit_code == 2
    assert "--also needs a manifest of utterances" in refused.stderr


@pytest.mark.slow
def test_an_audit_becomes_a_page(extract, shell, trained, tmp_path, secret):
    done = extract(trained / "planted" / "manifest.json", "--out", tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert run.result == "SecretAudit"
    assert [row["copies"] for row in run.rows if not row["drawn"]] == [30] + [0] * 6
    assert len(run.rows) == SPACE
    assert run.rows[0]["truth"] == " ".join(secret)
    assert run.run["data"]["manifest"]
    assert "never planted" in done.stdout
    page = tmp_path / "page.html"
    assert shell("report", tmp_path / "run", "--out", page).finished
    text = page.read_text("utf-8")
    assert "Does the model reveal planted secrets?" in text
    assert "▪▪▪ ▪▪▪" in text
    assert f"<bdi>{' '.join(secret)}</bdi>" not in text
    assert shell("report", tmp_path / "run", "--out", tmp_path / "open.html", "--show-secrets")
    best = run.rows[0]["guess"]
    assert f"<bdi>{best}</bdi>" in (tmp_path / "open.html").read_text("utf-8")


def test_the_truth_gets_a_rank_and_is_redacted_unless_secrets_are_wanted(
    extract, shell, tmp_path, secret
):
    truth = " ".join(secret)
    asked = ("--pattern", "pin:2", "--truth", truth)
    hidden = extract(*asked, "--out", tmp_path / "run")
    shown = extract(*asked, "--show-secrets")
    assert re.search(rf"has rank \d+ of {SPACE}\.", hidden.stdout)
    assert " instead of 50 on average." in hidden.stdout
    assert hidden.stdout.count("▪▪▪ ▪▪▪") == 11  # the guess, and the ten best
    assert "--show-secrets shows them" in hidden.stderr
    assert "▪" not in shown.stdout
    assert not {truth, *secret} & set(hidden.stdout.split(" "))
    assert shell("report", tmp_path / "run", "--out", tmp_path / "page.html").finished
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "--truth …" in re.sub("<[^>]+>", "", text)
    assert f"'{truth}'" not in text
    assert f"<dd>{truth}</dd>" not in text


def test_without_the_truth_nothing_is_claimed(extract):
    asked = ("--pattern", "my pin code is {digit:2}", "--intent", "PinIntent")
    said = extract(*asked).stdout
    assert "That does not show that they are in its training text" in said
    assert f"of all {SPACE} secrets" in said
    assert "There is no rank without the truth" in said
    assert "leak" not in said
    found = json.loads(extract(*asked, "--json").stdout)
    assert found["median_rank"] is None
    assert 1 / SPACE <= found["certainty"] < 1


def test_unknown_words_may_be_anywhere_and_of_candidates_of_ones_own(extract, tmp_path):
    asked = ("--pattern", "my pin {few:2} is code", "--intent", "PinIntent")
    extract(*asked, "--candidates", "few=1,2,3", "--out", tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert run.rows[0]["pattern"] == "my pin _ _ is code"
    assert run.summary["losses_per_trial"] == 9


def test_what_exceeds_the_budget_is_ranked_by_a_sample_or_not_at_all(extract, secret):
    asked = ("--pattern", "pin:2", "--truth", " ".join(secret), "--search-budget", 10, "--json")
    sampled = json.loads(extract(*asked, "--rank-sample", 40).stdout)
    assert sampled["search"] == "coordinate"
    assert not sampled["ranks_exact"]
    left_out = json.loads(extract(*asked, "--rank-sample", 0).stdout)
    assert left_out["median_rank"] is None


# A Hugging Face encoder is fine-tuned and attacked by the same command.


@pytest.fixture(scope="module")
def tuned(shell, tiny_encoder, tmp_path_factory):
    root = tmp_path_factory.mktemp("encoder")
    towns = ("york", "bath")
    spoken = [
        Utterance((*words, town), (*["O"] * len(words), "B-city"), intent)
        for _ in range(6)
        for town in towns
        for words, intent in ((("fly", "to"), "Fly"), (("rain", "in"), "Ask"))
    ]
    write_utterances(Utterances.of(spoken), root / "said.jsonl")
    encoder = tiny_encoder(root / "bert")
    for words in (
        ("plant", root / "said.jsonl", "--task", "nlu", "--pattern", "pin:2", "--copies", 30,
         "--controls", 8, "--out", root / "planted"),
        ("train", root / "planted", "--task", "nlu", "--from", encoder, "--epochs", 25,
         "--learning-rate", 0.01, "--batch-size", 8, "--device", "cpu", "--out", root / "tuned"),
    ):  # fmt: skip
        done = shell(*words)
        assert done.exit_code == 0, done.stderr
    return root


def test_a_secret_said_to_an_encoder_stands_out_and_controls_do_not(shell, tuned, tmp_path):
    words = ("--device", "cpu", "--json", "--out", tmp_path / "out")
    done = shell("extract", tuned / "tuned", tuned / "planted", *words)
    assert done.finished, done.stderr
    found = json.loads(done.stdout)
    assert found["planted_median_rank"] <= 10
    assert found["controls_median_rank"] > 20
    assert found["planted_exposure"] > found["controls_exposure"]


def test_an_encoder_is_searched(shell, tuned, tmp_path):
    words = ("--pattern", "pin:2", "--truth", "4 2", "--search-budget", 10, "--device", "cpu")
    done = shell("extract", tuned / "tuned", *words, "--json", "--out", tmp_path / "out")
    assert done.finished, done.stderr
    assert 1 <= json.loads(done.stdout)["median_rank"] <= 100
