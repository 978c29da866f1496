"""Exposure of known secrets: ranks, p-values, and secrets that were never read."""

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
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.predictions import text_log_probs


@pytest.fixture(scope="module")
def model() -> HuggingFaceLanguageModel:
    return untaught()


def test_a_rank_in_a_whole_space_is_a_count(model):
    secret = read_secret("the gate code is {{42}}", 1)
    found = secret_exposure(model, [secret], seed=0)
    (one,) = found.rows
    texts = [f"the gate code is {number:02d}" for number in range(100)]
    scores = text_log_probs(model, model.vocabulary.encode_batch(texts))
    rank = 1 + sum(score >= scores[42] - 1e-4 for score in np.delete(scores, 42))
    assert (one["whole"], one["references"], one["rank"], one["p"]) == (True, 99, rank, rank / 100)
    assert one["exposure"] == pytest.approx(np.log2(100 / rank))


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "a.smith27@mail.example",
        "card 4539148803436467",
        "from {{1234}} to {{5678}}",
    ],
)
def test_p_values_of_secrets_that_were_never_read_are_no_smaller_than_by_chance(model, line):
    """Secrets drawn like their alternatives: a rank is then as likely as any other."""
    generator = np.random.default_rng(3)
    one_of_them = read_secret(line, 1)
    secrets = [read_secret(one_of_them.draw(generator), n) for n in range(60)]
    assert {secret.size for secret in secrets} == {one_of_them.size}
    found = secret_exposure(model, secrets, seed=1, references=100)
    p = np.array([row["p"] for row in found.rows])
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).sum() <= 60 * level + 3 * np.sqrt(60 * level * (1 - level))
    assert kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    assert not found.summary["found"]


@pytest.mark.slow
def test_alternatives_of_another_shape_would_be_noticed(model, monkeypatch):
    """The same test with nines in place of drawn digits: it is one that can fail."""
    generator = np.random.default_rng(3)
    texts = [f"the gate code is {generator.integers(10**6):06d}" for _ in range(60)]
    longer = [f"{text} {text}" for text in texts]
    known = dict(zip(texts, longer, strict=True))
    secrets = [read_secret(text, n) for n, text in enumerate(texts)]
    monkeypatch.setattr(Secret, "draw", lambda self, generator: known[self.text])
    found = secret_exposure(model, secrets, seed=1, references=100)
    p = np.array([row["p"] for row in found.rows])
    assert kstest(p, "uniform", alternative="greater").pvalue < 1e-3


def test_sampling_stops_at_a_secret_that_is_no_more_probable_than_its_alternatives(model):
    secrets = [read_secret(f"the gate code is {number}", 1) for number in (123456, 987654)]
    found = secret_exposure(model, secrets, seed=0, references=4000)
    for one in found.rows:
        ahead = one["rank"] - 1
        if one["references"] < 4000:
            assert ahead == ENOUGH
            assert one["p"] == ENOUGH / one["references"]
        else:
            assert one["p"] == (ahead + 1) / 4001


@pytest.mark.slow
def test_a_learned_secret_is_found_and_others_are_not(model):
    secrets = [read_secret(f"the gate code is {n}", 1) for n in (314159, 271828, 161803)]
    with taught(model, secrets[0].text):
        found = secret_exposure(model, secrets, seed=0, references=500)
    assert [row["adjusted_p"] <= 0.05 for row in found.rows] == [True, False, False]
    assert (found.verdict, found.summary["found"]) == (LEAK, 1)
    assert found.rows[0]["rank"] == 1
    assert found.rows[0]["at_ceiling"]
    assert not any(row["in_part"] for row in found.rows)


@pytest.mark.slow
def test_a_secret_is_not_flagged_because_its_name_was_read_elsewhere(model):
    """The model has read the name with other numbers, and another address whole."""
    numbers = np.random.default_rng(0).integers(1000, size=40)
    elsewhere = [f"to zoe.mallow{number:03d}@mail.example" for number in numbers if number != 650]
    secrets = [
        read_secret(f"to {name}@mail.example", n)
        for n, name in enumerate(("zoe.mallow650", "ivo.tarn417"), 1)
    ]
    texts = [text for other in elsewhere for text in (other, secrets[1].text)]
    with taught(model, *texts, steps=300):
        found = secret_exposure(model, secrets, seed=0, references=500)
    one, other = found.rows
    assert (one["rank"], one["joint_p"], one["p"] > 0.025) == (1, 1 / 501, True)
    assert other["rank"] == 1
    assert (one["found"], one["in_part"]) == (False, True)
    assert "Known in part" in found.summary["sentence"]
    assert any("Known in part" in check.sentence for check in found.claim.failed)


def test_too_few_alternatives_decide_nothing(model):
    secrets = [read_secret(f"the gate code is {n}", 1) for n in (314159, 271828)]
    found = secret_exposure(model, secrets, seed=0, references=10)
    assert found.verdict == UNDECIDED
    assert "The least p-value is 0.18" in " ".join(found.claim.reasons)


def test_a_secret_that_does_not_fit_is_skipped_by_its_number(model):
    secrets = [read_secret("the gate code is {{12}}", 1), read_secret("7" * 200, 2)]
    found = secret_exposure(model, secrets, seed=0)
    assert (found.summary["skipped"], [row["secret_number"] for row in found.rows]) == (1, [1])
    assert found.verdict == UNDECIDED
    assert "50% of the 2 distinct secrets were read" in " ".join(found.claim.reasons)
    with pytest.raises(DataError, match=r"secret 2 needs .* tokens; the model reads 128"):
        secret_exposure(model, secrets[1:], seed=0)


@pytest.mark.slow
def test_the_verb_takes_secrets_in_place_of_a_manifest(model, tmp_path):
    file = tmp_path / "secrets.txt"
    file.write_text("the gate code is {{42}}\n\ncall 555 0199\n")
    found = vestige.exposure(model, file, references=200)
    assert [row["kind"] for row in found.rows] == ["code", "phone"]
    assert found == vestige.exposure(
        model, ["the gate code is {{42}}", "", "call 555 0199"], references=200
    )
    file.write_text("!!\n")
    with pytest.raises(VestigeError, match=r"secrets\.txt: no secret can be used.* secret 1"):
        vestige.exposure(model, file)
    with pytest.raises(ValueError, match="`exact` needs a manifest of canaries as `secrets`"):
        vestige.exposure(model, ["7 7 7"], exact=9)
    with pytest.raises(ValueError, match="`question` needs a file of secrets as `secrets`"):
        vestige.exposure(model, MANIFEST, question="Well?")
    with pytest.raises(ValueError, match="`secrets` must hold 1 to"):
        vestige.exposure(model, [])
