"""A defence that cannot be had as asked: one clear message, exit code 2, nothing left behind."""

import json

import pytest

from tests.cli.refusals import listing, refused, table
from vestige.models.folders import fingerprint
from vestige.training.directory import CHECKPOINT, MODEL

LINES = [
    "the gate opens at nine",
    "the code of the gate is new",
    "nobody knows the code at night",
    "a lantern stands at the gate of the mill",
    "the miller knows a new code",
] * 4
QUICK = "--layers 1 --hidden-size 8 --epochs 1 --batch-size 4"
LETTERS = f"D/letters.jsonl --user who {QUICK}"
NEW = f"{LETTERS} --out D/new"
NOISY = "--defence dp-sgd --noise-multiplier 1 --accountant rdp --accept-private-vocabulary"


DIVERGING = "--optimizer sgd --hold-out 0 --learning-rate"
DIVERGES = {
    "dp-sgd": NOISY,
    "dp-sgd for users": f"{NOISY} --unit user --batch-size 3",
    "dp-fedavg": f"{NOISY} --batch-size 3".replace("sgd", "fedavg"),
    "adversarial": "--defence adversarial",
    "triplet": "--defence triplet",
    "goldfish": "--defence goldfish",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, shell):
    """Letters of three people, of one and of nobody, and a training under each of three."""
    root = tmp_path_factory.mktemp("place")
    for name, users in [("letters", ["ann", "bob", "cy"]), ("anns", ["ann"]), ("nobodys", [])]:
        rows = [
            {"text": line, **({"who": users[i % len(users)]} if users else {})}
            for i, line in enumerate(LINES)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (root / f"{name}.jsonl").write_text(text)
    for name, words in [
        ("plain", ""),
        ("dp", NOISY),
        ("adversarial", "--defence adversarial"),
    ]:
        done = train(shell, root, f"{LETTERS} --out D/{name} {words}")
        assert done.exit_code == 0, (done.stderr, done.exception)
    return root


def train(shell, place, words):
    return shell("train", *(word.replace("D/", f"{place}/", 1) for word in words.split()))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), table("training"))
def test_what_cannot_be_had_is_refused(shell, place, words, says):
    given = (word.replace("D/", f"{place}/", 1) for word in words.split())
    refused(shell, ["train", *given], *says, unchanged=lambda: listing(place, locks=True))


@pytest.mark.slow
@pytest.mark.parametrize("words", DIVERGES.values(), ids=DIVERGES)
def test_a_training_that_diverges_at_once_leaves_nothing(shell, place, words):
    before = listing(place, locks=True)
    done = train(shell, place, f"{NEW} {DIVERGING} 1e300 {words}")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert "The training diverged at step" in done.stderr.splitlines()[-1]
    assert "below 1e+300" in done.stderr.splitlines()[-1]
    assert "checkpoint" not in done.stderr
    assert listing(place, locks=True) == before


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "dp-fedavg" else pytest.mark.long) for n in DIVERGES],
)
def test_a_training_that_diverges_later_keeps_its_last_good_checkpoint(
    shell, place, tmp_path, name
):
    from safetensors.torch import load

    words, slow = DIVERGES[name], "--epochs 9 --checkpoint-every 1"
    given = f"{LETTERS} --out {tmp_path}/new {DIVERGING} 1e37 {words} {slow}"
    done = train(shell, place, given)
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert f"last good checkpoint is in {tmp_path}/new" in done.stderr.splitlines()[-1]
    whole = (tmp_path / "new" / CHECKPOINT).read_bytes()
    kept = load(whole)
    assert all(tensor.isfinite().all() for tensor in kept.values() if tensor.is_floating_point())
    assert not (tmp_path / "new" / MODEL).exists()

    again = train(shell, place, f"{given} --resume")  # no luck, but nothing is lost either
    assert again.exit_code == 2
    assert (tmp_path / "new" / CHECKPOINT).read_bytes() == whole


def test_a_training_that_is_there_survives_a_failed_resume(shell, place):
    before = fingerprint(place / "dp")
    done = train(shell, place, f"{LETTERS} --out D/dp --resume --defence dp-sgd --epsilon -1")
    assert done.exit_code == 2
    assert fingerprint(place / "dp") == before


def test_trainings_of_which_none_could_begin_leave_nothing(shell, workspace, tmp_path):
    words = ("train", workspace / "empty.txt", "--seeds", 2, "--out")
    assert shell(*words, tmp_path / "new").exit_code == 2
    (tmp_path / "mine").mkdir()
    assert shell(*words, tmp_path / "mine").exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
