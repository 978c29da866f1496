"""A defence that cannot be had as asked: one clear message, exit code 2, nothing left behind."""

import json

import pytest

from tests.cli.refusals import listing, refused
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
DP = f"{NEW} --accept-private-vocabulary --defence dp-sgd"
PRIVATE = f"{DP} --epsilon 8"
AVERAGED = f"{NEW} --accept-private-vocabulary --defence dp-fedavg --epsilon 8 --batch-size 2"
NOISY = "--defence dp-sgd --noise-multiplier 1 --accountant rdp --accept-private-vocabulary"
HIDDEN = f"{NEW} --defence adversarial"
NOBODYS = f"D/nobodys.jsonl {QUICK} --out D/new"
ANNS = f"D/anns.jsonl --user who {QUICK} --out D/new"
FAR = "--epochs 1000 --batch-size 20 --epsilon 1e-6 --accountant rdp"

# The words after `vestige train`, D/ standing for the directory, and what the message must name.
CASES = {
    # options of another defence
    "epsilon alone": (f"{NEW} --epsilon 8", "--epsilon", "--defence dp-fedavg or dp-sgd"),
    "delta alone": (f"{NEW} --delta 1e-5", "--delta", "--defence dp-fedavg or dp-sgd"),
    "clip alone": (f"{NEW} --clip 2", "--clip", "--defence dp-fedavg or dp-sgd"),
    "unit alone": (f"{NEW} --unit user", "--unit", "--defence dp-sgd"),
    "noise with goldfish": (
        f"{NEW} --defence goldfish --noise-multiplier 1",
        "--noise-multiplier",
        "--defence dp-fedavg or dp-sgd",
    ),
    "accountant with adversarial": (f"{HIDDEN} --accountant rdp", "--accountant", "dp-sgd"),
    "physical batches alone": (f"{NEW} --physical-batch-size 2", "--physical-batch-size", "dp-sgd"),
    "weight with goldfish": (f"{NEW} --defence goldfish --weight 1", "--weight", "triplet"),
    "weight with dp-sgd": (f"{PRIVATE} --weight 1", "--weight", "adversarial"),
    "pairing with dp-sgd": (f"{PRIVATE} --pairing in-batch", "--pairing", "triplet"),
    "goldfish k alone": (f"{NEW} --goldfish-k 3", "--goldfish-k", "goldfish"),
    "unknown defence": (f"{NEW} --defence hope", "--defence must be one of", "goldfish"),
    # a budget
    "no budget": (DP, "--epsilon", "neither"),
    "two budgets": (f"{PRIVATE} --noise-multiplier 1", "--noise-multiplier", "both"),
    "epsilon of zero": (f"{DP} --epsilon 0", "--epsilon", "positive"),
    "epsilon negative": (f"{DP} --epsilon -3", "--epsilon", "positive"),
    "epsilon not a number": (f"{DP} --epsilon nan", "--epsilon", "finite"),
    "epsilon infinite": (f"{DP} --epsilon inf", "--epsilon", "finite"),
    "epsilon a word": (f"{DP} --epsilon little", "--epsilon", "must be a number"),
    "epsilon out of reach": (f"{DP} {FAR}", "is out of reach in 1000 steps", "fewer epochs"),
    "noise negative": (f"{DP} --noise-multiplier -1", "--noise-multiplier", "at least 0"),
    "noise infinite": (f"{DP} --noise-multiplier inf", "--noise-multiplier", "finite"),
    "delta of zero": (f"{PRIVATE} --delta 0", "--delta", "[1e-12, 1)"),
    "delta of one": (f"{PRIVATE} --delta 1", "--delta", "[1e-12, 1)"),
    "delta infinite": (f"{PRIVATE} --delta inf", "--delta", "finite"),
    "delta not a number": (f"{PRIVATE} --delta nan", "--delta", "finite"),
    "delta below rounding errors": (f"{PRIVATE} --delta 1e-14", "--delta", "rounding errors"),
    "delta of one in n": (
        f"{PRIVATE} --delta 0.1",
        "--delta must be below 1 / 20",
        "one of n whole",
    ),
    "a limit for a bound": (f"{PRIVATE} --accountant gdp", "--accountant", "rdp"),
    "lots of no kind": (
        f"{PRIVATE} --batching documents",
        "batching must be poisson",
        "Poisson sampling",
    ),
    "delta of two": (f"{PRIVATE} --delta 2", "--delta", "[1e-12, 1)"),
    "clip of zero": (f"{PRIVATE} --clip 0", "--clip", "positive"),
    "clip negative": (f"{PRIVATE} --clip -1", "--clip", "positive"),
    "clip not a number": (f"{PRIVATE} --clip nan", "--clip", "finite"),
    "unknown accountant": (f"{PRIVATE} --accountant bank", "--accountant", "rdp"),
    # lots and batches
    "users unknown": (
        f"{NOBODYS} --defence dp-sgd --epsilon 8 --unit user",
        "Users are held out or capped, but the corpus has no user column",
        "--user",
    ),
    "lots of sequences for users": (
        f"{PRIVATE} --unit user --batching poisson",
        "--unit user",
        "--batching poisson",
    ),
    "lots of users for sequences": (
        f"{PRIVATE} --batching poisson-users",
        "--unit sequence",
        "--batching poisson-users",
    ),
    "dp-sgd on a stream": (f"{PRIVATE} --batching stream", "--batching stream", "one by one"),
    "dp-sgd without lots": (f"{PRIVATE} --batching documents", "batching", "Poisson sampling"),
    "adversarial on a stream": (f"{HIDDEN} --batching stream", "--batching stream", "one by one"),
    "more than all sequences": (f"{PRIVATE} --batch-size 99", "20 sequences", "smaller batch_size"),
    "cap of zero": (
        f"{NEW} --max-documents-per-user 0",
        "--max-documents-per-user",
        "at least 1",
    ),
    "cap of nobody": (
        f"{NOBODYS} --max-documents-per-user 2",
        "Users are held out or capped, but the corpus has no user column",
        "--user",
    ),
    "all held out": (
        f"{NEW} --hold-out 0.999",
        "All 20 documents would be used for validation",
        "smaller share",
    ),
    "nothing to stop by after all": (
        f"{NEW} --stop-at-perplexity 20",
        "none was held out",
        "--validation, or a larger --hold-out",
    ),
    "more than all users": (f"{PRIVATE} --unit user", "3 users", "smaller batch_size"),
    "unknown unit": (f"{PRIVATE} --unit household", "--unit must be one of", "user"),
    "physical batches of zero": (
        f"{PRIVATE} --physical-batch-size 0",
        "--physical-batch-size",
        "at least 1",
    ),
    # users who learn by themselves
    "fedavg of nobody": (
        f"{NOBODYS} --defence dp-fedavg --epsilon 8",
        "Users are held out or capped, but the corpus has no user column",
        "--user",
    ),
    "fedavg without a budget": (f"{NEW} --defence dp-fedavg", "--defence dp-fedavg", "neither"),
    "fedavg with two": (f"{AVERAGED} --noise-multiplier 1", "--noise-multiplier", "both"),
    "more users than there are": (f"{AVERAGED} --batch-size 4", "3 users", "smaller batch_size"),
    "fedavg of sequences": (f"{AVERAGED} --batching poisson", "poisson-users", "'poisson'"),
    "fedavg on a stream": (f"{AVERAGED} --batching stream", "--batching stream", "one by one"),
    "fedavg with a unit": (f"{AVERAGED} --unit user", "--unit", "needs --defence dp-sgd"),
    "fedavg in parts": (f"{AVERAGED} --physical-batch-size 2", "--physical-batch-size", "dp-sgd"),
    "fedavg with a negative clip": (f"{AVERAGED} --clip -1", "--clip", "positive"),
    "local epochs alone": (
        f"{PRIVATE} --local-epochs 2",
        "--local-epochs",
        "needs --defence dp-fedavg",
    ),
    "local batches alone": (f"{NEW} --local-batch-size 2", "--local-batch-size", "dp-fedavg"),
    "local rate alone": (f"{NEW} --local-learning-rate 2", "--local-learning-rate", "dp-fedavg"),
    "local epochs of zero": (f"{AVERAGED} --local-epochs 0", "--local-epochs", "at least 1"),
    "local batches of zero": (
        f"{AVERAGED} --local-batch-size 0",
        "--local-batch-size",
        "at least 1",
    ),
    "local rate of zero": (
        f"{AVERAGED} --local-learning-rate 0",
        "--local-learning-rate",
        "positive",
    ),
    "local rate not a number": (
        f"{AVERAGED} --local-learning-rate nan",
        "--local-learning-rate",
        "finite",
    ),
    "users' batches of nobody": (
        f"{NOBODYS} --batching users",
        "Batches by 'users' need a user for each document",
        "--user",
    ),
    "unknown batching": (f"{NEW} --batching sideways", "--batching must be one of", "poisson"),
    # the regularizers and the goldfish
    "adversarial without users": (f"{NOBODYS} --defence adversarial", "adversarial", "--user"),
    "adversarial with one user": (
        f"{ANNS} --defence adversarial",
        "The adversarial defence hides users among one another, but the data has only one",
        "goldfish",
    ),
    "triplet without users": (f"{NOBODYS} --defence triplet", "triplet", "--user"),
    "triplet with one user": (
        f"{ANNS} --defence triplet",
        "The triplet defence hides users among one another, but the data has only one",
        "several users",
    ),
    "user column missing": (
        f"D/letters.jsonl --user sender {QUICK} --out D/new --defence triplet",
        'column "sender"',
        "text, who",
    ),
    "weight negative": (f"{HIDDEN} --weight -1", "--weight", "at least 0"),
    "weight not a number": (f"{HIDDEN} --weight nan", "--weight", "finite"),
    "weight infinite": (f"{HIDDEN} --weight inf", "--weight", "finite"),
    "unknown pairing": (
        f"{NEW} --defence triplet --pairing across",
        "--pairing must be one of",
        "in-batch",
    ),
    "goldfish k of one": (f"{NEW} --defence goldfish --goldfish-k 1", "--goldfish-k", "at least 2"),
    # when to look and to stop
    "perplexity below one": (f"{NEW} --stop-at-perplexity 0.5", "--stop-at-perplexity", "above 1"),
    "perplexity not a number": (
        f"{NEW} --stop-at-perplexity nan",
        "--stop-at-perp",
        "See vestige train --help",
    ),
    "perplexity infinite": (f"{NEW} --stop-at-perplexity inf", "--stop-at-perplexity", "finite"),
    "nothing to judge perplexity": (
        f"{NEW} --stop-at-perplexity 20 --hold-out 0",
        "--stop-at-perplexity",
        "--validation",
    ),
    "look after no steps": (f"{NEW} --evaluate-every 0", "--evaluate-every", "at least 1"),
    "learning rate infinite": (f"{NEW} --learning-rate inf", "--learning-rate", "finite"),
    "longer than a transformer reads": (
        f"{NEW} --architecture transformer --hidden-size 12 --sequence-length 999",
        "--sequence-length",
        "at most 256",
    ),
    # a training that is another one
    "resume with other noise": (
        f"{LETTERS} --out D/dp --resume {NOISY} --noise-multiplier 2",
        "has another training: step.noise_multiplier was 1.0 and is 2.0",
        "same settings",
    ),
    "resume with an epsilon": (
        f"{LETTERS} --out D/dp --resume {NOISY.replace('--noise-multiplier 1', '--epsilon 3')}",
        "noise_multiplier was 1.0",
        "same settings",
    ),
    "resume with another clip": (
        f"{LETTERS} --out D/dp --resume {NOISY} --clip 2",
        "has another training: step.max_grad_norm was 1.0 and is 2.0",
        "same settings",
    ),
    "resume for users": (
        f"{LETTERS} --out D/dp --resume {NOISY} --unit user --batch-size 2",
        "config.batching was poisson and is poisson-users",
        "same settings",
    ),
    "resume a private one without": (
        f"{LETTERS} --out D/dp --resume",
        "step was DPSGD and is plain_step",
        "Resume with the same settings, data and model",
    ),
    "resume an undefended one in private": (
        f"{LETTERS} --out D/plain --resume {NOISY}",
        "step was plain_step and is DPSGD",
        "Resume with the same settings, data and model",
    ),
    "resume with another weight": (
        f"{LETTERS} --out D/adversarial --resume --defence adversarial --weight 3",
        "has another training: step.weight was 1.0 and is 3.0",
        "same settings",
    ),
    "resume under another defence": (
        f"{LETTERS} --out D/adversarial --resume --defence triplet",
        "has another training: step was Adversarial and is Triplet",
        "same settings",
    ),
}

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


def test_there_are_at_least_thirty():
    assert len(CASES) >= 30


@pytest.mark.parametrize(("words", "names", "remedy"), CASES.values(), ids=CASES)
def test_what_cannot_be_had_is_refused(shell, place, words, names, remedy):
    given = (word.replace("D/", f"{place}/", 1) for word in words.split())
    refused(shell, ["train", *given], names, remedy, unchanged=lambda: listing(place, locks=True))


@pytest.mark.parametrize("words", DIVERGES.values(), ids=DIVERGES)
def test_a_training_that_diverges_at_once_leaves_nothing(shell, place, words):
    before = listing(place, locks=True)
    done = train(shell, place, f"{NEW} {DIVERGING} 1e300 {words}")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert "The training diverged at step" in done.stderr.splitlines()[-1]
    assert "below 1e+300" in done.stderr.splitlines()[-1]
    assert "checkpoint" not in done.stderr
    assert listing(place, locks=True) == before


@pytest.mark.parametrize("words", DIVERGES.values(), ids=DIVERGES)
def test_a_training_that_diverges_later_keeps_its_last_good_checkpoint(
    shell, place, tmp_path, words
):
    from safetensors.torch import load

    slow = "--epochs 9 --checkpoint-every 1"
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
