"""Canary extraction at its smallest: trained once, attacked once, and found again."""

from dataclasses import replace

import pytest
import torch

from reproduction.nlu.planted_models import BEST, LAST, PlantedModel
from reproduction.nlu.secret_extractions import SecretExtraction
from reproduction.nlu.table_rows import DEFENCES, Line, Lines, all_three, utility_of
from reproduction.papers import paper_numbers, reproduce, settings_of
from reproduction.runner import make_trial, run_trials
from vestige.errors import RunError

SMOKE = settings_of("nlu", "table2", "smoke")
PAPER = {name: paper_numbers("nlu", name, key=3) for name in ("table2", "table3", "table4")}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("nlu")


@pytest.fixture(scope="module")
def lines(home) -> Lines:
    return Lines(SMOKE, home, None)


@pytest.fixture(scope="module")
def models(lines) -> tuple[PlantedModel, ...]:
    made = lines.models(all_three(2), 20)
    run_trials(made)
    return made


@pytest.fixture(scope="module")
def extraction(home, models) -> SecretExtraction:
    return SecretExtraction(
        directory=home / "attacked", models=models, pattern="pin:2", weights=LAST, attack="auto"
    )


def test_a_model_has_the_secret_of_its_seed_and_one_that_is_never_planted(lines):
    first, second = lines.models(all_three(2), 20)
    assert first.canary("pin:2").secret != second.canary("pin:2").secret
    assert [canary.copies for canary in first.canaries] == [20, 0] * 3
    assert first.canary("pin:2").secret == lines.models(("pin:2",), 1)[0].canary("pin:2").secret


def test_early_stopping_keeps_the_epoch_that_was_best_before_patience_ended(models):
    for model in models:
        made = model.result()
        losses = [record["validation_perplexity"] for record in made["history"]]
        assert made[LAST]["epoch"] == len(losses)
        assert losses[made[BEST]["epoch"] - 1] == min(losses[: made[BEST]["epoch"] + 2])


@pytest.mark.slow
def test_a_training_gives_the_same_bits_again(models, tmp_path):
    again = replace(models[0], directory=tmp_path / "again")
    make_trial(again)
    for weights in (LAST, BEST):
        one, other = (made.model(weights).state_dict() for made in (models[0], again))
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert again.result()[weights] == models[0].result()[weights]


def test_the_folder_of_corpora_decides_nothing_and_the_copies_do(models, tmp_path):
    assert replace(models[0], data=tmp_path).key == models[0].key
    with pytest.raises(RunError, match="copies = 20, not 21"):
        run_trials([replace(models[0], copies=21)])


def test_known_digits_are_told_and_the_rest_is_asked_for(tmp_path, extraction):
    known = replace(extraction, known=1, directory=tmp_path / "known")
    run_trials([known])
    for row, model in zip(known.result()["rows"], extraction.models, strict=True):
        secret = model.canary("pin:2").secret
        assert row["pattern"] == f"my pin code is {secret[0]} _"
        assert row["truth"] == secret[1]
        assert 1 <= row["rank"] <= 10


def test_an_attack_is_described_by_its_models_and_settings(extraction):
    run_trials([extraction])
    assert [row["truth"] for row in extraction.result()["rows"]] == [
        " ".join(model.canary("pin:2").secret) for model in extraction.models
    ]
    with pytest.raises(RunError, match="budget = 30000, not 10"):
        replace(extraction, budget=10).result()
    with pytest.raises(RunError, match="configuration: models"):
        replace(extraction, models=extraction.models[:1]).result()


def test_a_line_says_what_was_found_and_how_well_the_models_predict(extraction):
    run_trials([extraction])
    line = Line(
        extraction=extraction, names={"canary": "pin"}, paper={"hamming": 0.5}, utility=True
    )
    row, found = line.row(), extraction.result()
    assert (row["canary"], row["attack"], row["trials"]) == ("pin", "auto", 2)
    assert (row["paper_accuracy"], row["paper_hamming"]) == (None, 0.5)
    right = [guess["guess"] == guess["truth"] for guess in found["rows"]]
    assert row["accuracy"] == sum(right) / 2
    scores = [model.result()[LAST]["slot_f1"] for model in extraction.models]
    assert row["slot_f1"] == pytest.approx(sum(scores) / 2)
    assert utility_of(extraction.models[:1], BEST)["slot_f1_low"] is None


def test_every_table_has_its_lines(lines):
    """Counted by hand: three canaries and three attacks, of which Table 3 leaves one out."""
    counts = [
        (lines.by_copies(PAPER["table2"]), 9 * len(SMOKE.cells)),
        (lines.once(PAPER["table4"]), 9 * len(SMOKE.once)),
        (lines.defended(PAPER["table3"]), 6 * len(DEFENCES) * len(SMOKE.defended)),
        (lines.null(), 9),
        (lines.apart(), 6 * len(SMOKE.apart)),
        (lines.elsewhere(), 9 * sum(len(one.copies) for one in SMOKE.datasets)),
    ]
    for found, number in counts:
        assert len(list(found)) == number
    wide = replace(SMOKE, once=(10,))
    known = [line.extraction.known for line in Lines(wide, lines.directory, None).once({})]
    assert sorted(known) == [0] * 9 + [3] * 3


def test_the_papers_figures_stand_beside_its_own_attack_alone(lines):
    wide = Lines(replace(SMOKE, cells=((4, 10, 1),)), lines.directory, None)
    known = {
        (line.names["canary"], line.extraction.attack): line.paper
        for line in wide.by_copies(PAPER["table2"])
    }
    assert known["color", "paper"] == {"accuracy": 0.4, "hamming": 0.3}
    assert known["color", "auto"] == known["pin", "paper"] == {}


def test_every_defence_of_the_paper_has_its_row(lines):
    found = list(lines.defended(PAPER["table3"]))
    assert {line.names["defence"] for line in found} == set(DEFENCES)
    for line in found:
        early = "ES" in line.names["defence"]
        assert line.extraction.weights == (BEST if early else LAST)
        learner = line.extraction.models[0].learner
        assert learner.dropout == ("D" in line.names["defence"].split("+"))
        assert learner.characters == ("CE" in line.names["defence"])
    assert {defence for _, defence, _ in PAPER["table3"]} < set(DEFENCES)


@pytest.mark.slow
def test_a_table_is_filled_once_and_found_again(home, models, listener):
    names = ["table2", "utility"]
    tables = reproduce("nlu", "smoke", home, tables=names, monitor=listener)
    assert {table.name: len(table.entries) for table in tables} == {"table2": 9, "utility": 1}
    assert "nan" not in (home / "tables.md").read_text("utf-8").lower()
    (again,) = reproduce("nlu", "smoke", home, tables=["table2"], monitor=listener)
    assert again in tables
    assert listener.lines.count("filling table2") == 1
