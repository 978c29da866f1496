"""Tables of canary extraction at the smallest scale: planting, training, attacks, and resuming."""

from dataclasses import replace

import pytest
import torch

from reproduction.nlu import planted_models, tables
from reproduction.nlu.planted_models import (
    BEST,
    LAST,
    EarlyWeights,
    Secrets,
    attack,
    new_model,
    pattern_words,
    train_planted,
)
from reproduction.nlu.tables import (
    ATTACKS,
    DEFENCES,
    Cell,
    all_canaries,
    attack_rows,
    train_models,
    utility_columns,
)
from reproduction.nlu.utterance_texts import read_parts
from reproduction.papers import compute_tables, paper_numbers, settings_of, tables_of
from reproduction.stages import Work
from vestige.models.checkpoints import load_intent_slot
from vestige.training.history import EarlyStopping, EpochRecord

SMOKE = settings_of("nlu", "table3", "smoke")
TEXT, LEARNER = SMOKE["text"], SMOKE["learner"]
SECRETS = Secrets(("pin:2", "color:2"), copies=10, seed=3)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Work:
    return Work(tmp_path_factory.mktemp("nlu"))


@pytest.fixture(scope="module")
def planted(work):
    models = train_models(TEXT, LEARNER, all_canaries(2), 20, range(2))
    work.all(models.calls)
    return models


def test_a_secret_has_its_copies_and_a_control_none() -> None:
    parts = read_parts(TEXT, None)
    training, validation = SECRETS.planted_in(parts)
    texts = [utterance.text for part in (training, validation) for utterance in part]
    for canary in SECRETS:
        secret = iter(canary.secret)
        words = [word if word is not None else next(secret) for word in canary.parsed.words]
        assert texts.count(" ".join(words)) == canary.copies
    assert [canary.copies for canary in SECRETS] == [10, 0] * 2
    assert len(texts) == len(parts.training) + len(parts.validation) + 2 * 10
    unplanted = replace(SECRETS, copies=0).planted_in(parts)
    assert unplanted == (parts.training, parts.validation)


def test_a_secret_depends_only_on_its_pattern_and_seed() -> None:
    first = SECRETS.secret("pin:2").secret
    assert first == Secrets(("pin:2",), copies=1, seed=3).secret("pin:2").secret
    assert first != replace(SECRETS, seed=4).secret("pin:2").secret


def test_the_vocabulary_does_not_depend_on_the_secrets() -> None:
    parts = read_parts(TEXT, None)
    plantings = (SECRETS, replace(SECRETS, copies=0), replace(SECRETS, seed=4))
    models = [new_model(parts, secrets, LEARNER) for secrets in plantings]
    assert len({model.vocabulary.fingerprint() for model in models}) == 1
    assert set("0123456789") & set(pattern_words(SECRETS.secret("pin:2").parsed))
    first, second, third = (dict(model.named_parameters()) for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], third[name]) for name in first)


@pytest.mark.parametrize(
    ("dropout", "characters", "expected"),
    [(False, False, (0.0, 0.0, 0)), (True, False, (0.2, 0.1, 0)), (True, True, (0.2, 0.1, 30))],
)
def test_defences_are_settings_of_the_network(dropout, characters, expected) -> None:
    shape = replace(LEARNER, dropout=dropout, characters=characters).shape
    settings = (shape["input_dropout"], shape["hidden_dropout"], shape["char_filters"])
    assert settings == expected
    assert shape["hidden_size"] == LEARNER.hidden_size


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ((3.0, 2.0, 1.0), 3),
        ((1.0, 2.0, 3.0), 1),
        ((3.0, 2.0, 2.5, 2.6, 1.0), 2),  # a patience of 2 ends before the last
        ((3.0, 2.0, 2.5, 1.0, 5.0), 4),
    ],
)
def test_early_stopping_keeps_the_best_weights_before_its_patience_ends(losses, best) -> None:
    early = EarlyWeights(EarlyStopping(2))
    network = torch.nn.Linear(1, 1)
    for epoch, loss in enumerate(losses, 1):
        with torch.no_grad():
            network.weight.fill_(float(epoch))
        record = EpochRecord(
            epoch=epoch, step=epoch, learning_rate=0.1, perplexity=1.0,
            validation_perplexity=loss, validation_accuracy=None,
        )  # fmt: skip
        early(network, record)
    assert early.epoch == best
    assert early.weights["weight"].item() == best
    assert len(early.records) == len(losses)


def test_the_best_epoch_precedes_the_end_of_patience(work, planted) -> None:
    for model in work.all(planted.calls):
        losses = [record["validation_perplexity"] for record in model.value["history"]]
        assert model.value[LAST]["epoch"] == len(losses)
        best = model.value[BEST]["epoch"]
        assert losses[best - 1] == min(losses[: best + 2])


@pytest.mark.slow
def test_an_interrupted_training_resumes_to_equal_bits(work, planted, tmp_path, monkeypatch):
    again, evaluate, calls = Work(tmp_path), planted_models.evaluate_utterances, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(planted_models, "evaluate_utterances", failing)
    call = train_planted(TEXT, planted.secrets[0], LEARNER)
    with pytest.raises(KeyboardInterrupt):
        again(call)
    assert (tmp_path / "stages" / call.key / LAST).is_dir()
    assert not again.is_intact(call)
    first, second = work(planted.calls[0]), again(call)
    for finished in (first, second):
        for record in finished.value["history"]:
            del record["seconds"]
    assert second.value == first.value
    for weights in (LAST, BEST):
        expected, resumed = (
            load_intent_slot(finished.folder / weights, device="cpu").state_dict()
            for finished in (first, second)
        )
        assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def test_known_digits_are_not_attacked(work, planted) -> None:
    for known in (0, 1):
        call = attack(planted.calls, planted.secrets, "pin:2", LAST, "auto", known=known)
        rows = work(call).value["rows"]
        for row, secrets in zip(rows, planted.secrets, strict=True):
            secret = secrets.secret("pin:2").secret
            assert row["truth"] == " ".join(secret[known:])
            if known:
                assert row["pattern"] == f"my pin code is {secret[0]} _"
                assert 1 <= row["rank"] <= 10


def test_rows_have_results_of_the_attack_and_utility_of_the_models(work, planted) -> None:
    cell, paper = Cell({"canary": "pin"}, planted, "pin:2"), {("pin",): {"hamming": 0.5}}
    papers, ours = attack_rows(work, [cell], paper, methods=("paper", "auto"))
    assert (ours["canary"], ours["attack"], ours["trials"]) == ("pin", "auto", 2)
    attacked = work(attack(planted.calls, planted.secrets, "pin:2", LAST, "auto")).value["rows"]
    assert ours["accuracy"] == sum(row["guess"] == row["truth"] for row in attacked) / 2
    # only rows of the paper's attack have the paper's figures
    assert (papers["paper_accuracy"], papers["paper_hamming"]) == (None, 0.5)
    assert (ours["paper_accuracy"], ours["paper_hamming"]) == (None, None)
    models = work.all(planted.calls)
    utility = utility_columns(models, LAST)
    assert utility["slot_f1"] == pytest.approx(sum(m.value[LAST]["slot_f1"] for m in models) / 2)
    assert utility_columns(models[:1], BEST)["slot_f1_low"] is None


@pytest.fixture
def cells_of(monkeypatch):
    """Returns the cells of a table and its number of rows, without attacks."""

    def cells_of(name, **changed):
        cells, rows = [], []

        def no_attacks(work, new_cells, paper=None, *, methods=ATTACKS):
            cells.extend(new_cells)
            rows.extend({} for _ in new_cells for _ in methods)
            return rows

        monkeypatch.setattr(tables, "attack_rows", no_attacks)
        monkeypatch.setattr(tables, "utility_columns", lambda models, weights: {})

        class NoWork:
            def all(self, calls):
                return []

        table = tables_of("nlu")[name]
        list(table.make(NoWork(), **(table.settings("smoke") | changed)))
        return cells, len(rows)

    return cells_of


def test_every_table_has_the_expected_number_of_rows(cells_of) -> None:
    """Three canaries and three attacks, of which Table 3 leaves one out."""
    counts = {"table2": 9, "table3": 6 * len(DEFENCES), "table4": 9, "null": 9, "apart": 6}
    for name, number in {**counts, "figures3-5": 9}.items():
        assert cells_of(name)[1] == number, name
    assert [cell.known for cell in cells_of("table4", once=(10,))[0]] == [0, 0, 0, 3]
    labels = [cell.labels for cell in cells_of("table2", cells=((4, 10, 1),))[0]]
    paper = paper_numbers("nlu", "table2", key=3)
    numbers = {label["canary"]: paper.get(tuple(label.values())) for label in labels}
    assert numbers["color"] == {"accuracy": 0.4, "hamming": 0.3}
    assert numbers["pin"] is None


def test_every_defence_of_the_paper_has_a_row(cells_of) -> None:
    cells, _ = cells_of("table3")
    assert {cell.labels["defence"] for cell in cells} == set(DEFENCES)
    for cell in cells:
        parts = cell.labels["defence"].split("+")
        assert cell.weights == (BEST if "ES" in parts else LAST)
        learner = cell.models.calls[0].arguments["learner"]
        assert learner.dropout == ("D" in parts)
        assert learner.characters == ("CE" in parts)
    paper = {defence for _, defence, _ in paper_numbers("nlu", "table3", key=3)}
    assert paper < set(DEFENCES)


@pytest.mark.slow
def test_tables_are_computed_once_and_share_their_models(work, planted, listener) -> None:
    names = ["table2", "utility"]
    made = compute_tables("nlu", "smoke", work.out, tables=names, monitor=listener)
    assert {table.name: len(table.entries) for table in made} == {"table2": 9, "utility": 1}
    assert sum("train_planted" in line for line in listener.lines) == 1  # of `utility`
    assert "nan" not in (work.out / "tables.md").read_text("utf-8").lower()
    (again,) = compute_tables("nlu", "smoke", work.out, tables=["table2"], monitor=listener)
    assert again in made
    assert listener.lines.count("computing table2") == 1
