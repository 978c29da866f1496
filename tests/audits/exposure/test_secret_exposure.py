"""Exposure of known secrets: ranks, p-values, verdicts and refusals."""

import numpy as np
import pytest
from scipy.stats import kstest

import vestige
from tests.audits.planted import MANIFEST
from tests.audits.small_llama import taught, untaught
from vestige.audits.exposure.secrets import ENOUGH, secret_exposure
from vestige.claims import LEAK, UNDECIDED
from vestige.data.secrets.lines import Secret, read_secret
from vestige.errors import DataError, VestigeError
from vestige.models.predictions import text_log_probs


@pytest.fixture(scope="module")
def model():
    return untaught()


def gate_codes(*codes):
    return [read_secret(f"the gate code is {code}", 1) for code in codes]


def test_a_rank_in_a_whole_space_is_a_count(model):
    [row] = secret_exposure(model, gate_codes("{{42}}"), seed=0).rows
    texts = [f"the gate code is {number:02d}" for number in range(100)]
    scores = text_log_probs(model, model.vocabulary.encode_batch(texts))
    rank = 1 + sum(score >= scores[42] - 1e-4 for score in np.delete(scores, 42))
    assert (row["whole"], row["references"], row["rank"], row["p"]) == (True, 99, rank, rank / 100)
    assert row["exposure"] == pytest.approx(np.log2(100 / rank))


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["a.smith27@mail.example", "card 4539148803436467", "from {{1234}} to {{5678}}"]
)
def test_p_values_of_unread_secrets_are_valid(model, line):
    """Secrets are sampled like their alternatives, so all ranks are equally probable."""
    generator, secret = np.random.default_rng(3), read_secret(line, 1)
    secrets = [read_secret(secret.draw(generator), n) for n in range(60)]
    assert {each.size for each in secrets} == {secret.size}
    result = secret_exposure(model, secrets, seed=1, references=100)
    p = np.array([row["p"] for row in result.rows])
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).sum() <= 60 * level + 3 * np.sqrt(60 * level * (1 - level))
    assert kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    assert not result.summary["found"]


@pytest.mark.slow
def test_the_test_of_p_values_detects_alternatives_of_another_format(model, monkeypatch):
    generator = np.random.default_rng(3)
    secrets = gate_codes(*(f"{generator.integers(10**6):06d}" for _ in range(60)))
    monkeypatch.setattr(Secret, "draw", lambda self, generator: f"{self.text} {self.text}")
    result = secret_exposure(model, secrets, seed=1, references=100)
    p = [row["p"] for row in result.rows]
    assert kstest(p, "uniform", alternative="greater").pvalue < 1e-3


def test_sampling_stops_when_enough_alternatives_are_more_probable(model):
    for row in secret_exposure(model, gate_codes(123456, 987654), seed=0, references=4000).rows:
        above = row["rank"] - 1
        if row["references"] < 4000:
            assert above == ENOUGH
            assert row["p"] == ENOUGH / row["references"]
        else:
            assert row["p"] == (above + 1) / 4001


@pytest.mark.slow
def test_a_learned_secret_is_detected_and_others_are_not(model):
    secrets = gate_codes(314159, 271828, 161803)
    with taught(model, secrets[0].text):
        result = secret_exposure(model, secrets, seed=0, references=500)
    assert [row["adjusted_p"] <= 0.05 for row in result.rows] == [True, False, False]
    assert (result.verdict, result.summary["found"]) == (LEAK, 1)
    assert result.rows[0]["rank"] == 1
    assert result.rows[0]["at_ceiling"]
    assert not any(row["in_part"] for row in result.rows)


@pytest.mark.slow
def test_a_secret_is_not_flagged_if_only_part_of_it_was_read(model):
    """The model has read one name with other numbers, and the other address complete."""
    numbers = np.random.default_rng(0).integers(1000, size=40)
    elsewhere = [f"to zoe.mallow{number:03d}@mail.example" for number in numbers if number != 650]
    secrets = [
        read_secret(f"to {name}@mail.example", n)
        for n, name in enumerate(("zoe.mallow650", "ivo.tarn417"), 1)
    ]
    texts = [text for other in elsewhere for text in (other, secrets[1].text)]
    with taught(model, *texts, steps=300):
        result = secret_exposure(model, secrets, seed=0, references=500)
    part, complete = result.rows
    assert (part["rank"], part["joint_p"], part["p"] > 0.025) == (1, 1 / 501, True)
    assert complete["rank"] == 1
    assert (part["found"], part["in_part"]) == (False, True)
    assert "Known in part" in result.summary["sentence"]
    assert any("Known in part" in check.sentence for check in result.claim.failed)


def test_too_few_alternatives_are_undecided(model):
    result = secret_exposure(model, gate_codes(314159, 271828), seed=0, references=10)
    assert result.verdict == UNDECIDED
    assert "The least p-value is 0.18" in " ".join(result.claim.reasons)


def test_a_secret_that_is_too_long_is_skipped_and_named_by_its_number(model):
    secrets = [*gate_codes("{{12}}"), read_secret("7" * 200, 2)]
    result = secret_exposure(model, secrets, seed=0)
    assert (result.summary["skipped"], [row["secret_number"] for row in result.rows]) == (1, [1])
    assert result.verdict == UNDECIDED
    assert "50% of the 2 distinct secrets were read" in " ".join(result.claim.reasons)
    with pytest.raises(DataError, match=r"secret 2 needs .* tokens; the model reads 128"):
        secret_exposure(model, secrets[1:], seed=0)


@pytest.mark.slow
def test_the_verb_reads_secrets_from_a_file_or_a_list(model, tmp_path):
    lines = ["the gate code is {{42}}", "", "call 555 0199"]
    file = tmp_path / "secrets.txt"
    file.write_text("\n".join(lines))
    result = vestige.exposure(model, file, references=200)
    assert [row["kind"] for row in result.rows] == ["code", "phone"]
    assert result == vestige.exposure(model, lines, references=200)
    file.write_text("!!\n")
    with pytest.raises(VestigeError, match=r"secrets\.txt: no secret can be used.* secret 1"):
        vestige.exposure(model, file)


@pytest.mark.parametrize(
    ("secrets", "options", "message"),
    [
        (["7 7 7"], {"exact": 9}, "`exact` needs a manifest of canaries as `secrets`"),
        (["7"], {"candidates": ["7"]}, "`candidates` needs a manifest of canaries"),
        (["7"], {"references": 0}, "`references` must be greater than or equal to 1"),
        ([], {}, "`secrets` must hold 1 to"),
        (MANIFEST, {"question": "Well?"}, "`question` needs a file of secrets as `secrets`"),
        (MANIFEST, {"before": "folder"}, "`before` needs a file of secrets"),
    ],
)
def test_options_for_other_secrets_are_refused(model, secrets, options, message):
    with pytest.raises(ValueError, match=message):
        vestige.exposure(model, secrets, **options)
