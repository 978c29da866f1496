"""Completion of known secrets: what is given, what is generated, and what chance explains."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import vestige
from tests.audits.passed import PASSED
from tests.audits.planted import MANIFEST
from tests.audits.small_llama import taught, untaught
from vestige.audits.extraction.user_secrets import complete_secrets, completion_result
from vestige.claims import LEAK, UNDECIDED
from vestige.data.secrets.lines import read_secret
from vestige.errors import DataError
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.reports.verdicts import sentence_of


@pytest.fixture(scope="module")
def model() -> HuggingFaceLanguageModel:
    return untaught()


def greedy(model: HuggingFaceLanguageModel, before: list[int], number: int) -> Iterator[int]:
    """The most probable token, time after time, by the network itself."""
    ids = [model.first_token, *before]
    for _ in range(number):
        with torch.no_grad():
            logits = model.network(input_ids=torch.tensor([ids])).logits[0, -1]
        ids.append(int(logits.argmax()))
        yield ids[-1]


@pytest.mark.slow
def test_a_learned_secret_is_completed_and_others_are_not(model):
    texts = [f"the gate code is {code}" for code in (314159, 271828, 161803)]
    secrets, encode = list(map(read_secret, texts, (1, 2, 3))), model.vocabulary.encode
    with taught(model, secrets[0].text):
        result = complete_secrets(model, secrets)
        decoded = [
            list(greedy(model, ids[: one["given_tokens"]], one["part_tokens"]))
            for one, ids in zip(result.rows, map(encode, texts), strict=True)
        ]
    assert [one["greedy"] for one in result.rows] == [True, False, False]
    assert result.rows[0]["beam_place"] == 1
    assert result.verdict == LEAK
    assert result.summary["p"] == pytest.approx(3e-6)
    for one, ids, own in zip(result.rows, map(encode, texts), decoded, strict=True):
        options = one["given_tokens"]
        assert model.vocabulary.decode(ids[:options]).rstrip() == "the gate code is"
        assert options + one["part_tokens"] == len(ids)
        assert one["greedy"] == (own == ids[options:])


def test_each_part_is_completed_after_those_before_it(model):
    result = complete_secrets(model, [read_secret("call {{555}} or {{01}}, the code", 1)])
    first, second = result.rows
    assert (first["phrase"], second["phrase"]) == ("call 555", "call 555 or 01")
    assert (first["chance"], second["chance"]) == (1e-3, 1e-2)
    (one,) = complete_secrets(model, [read_secret("{{4917}} is the gate code", 1)]).rows
    assert one["given_tokens"] == 0


def test_a_lucky_guess_of_two_is_not_decided(model):
    likely = next(greedy(model, model.vocabulary.encode("the gate code is "), 1))
    word = model.vocabulary.decode([likely]).strip() or "0"
    other = "9" if word != "9" else "8"
    result = complete_secrets(model, [read_secret(f"code {{{{{word}|{other}}}}}", 1)])
    assert result.summary["p"] in (0.5, 1.0)
    assert result.verdict == UNDECIDED
    assert "The least p-value is 0.5" in " ".join(result.claim.reasons)


@pytest.mark.slow
def test_secrets_never_read_are_completed_no_more_often_than_chance_allows(model):
    generator = np.random.default_rng(5)
    secrets = [
        read_secret(f"the gate code is {{{{{n:02d}}}}}", 1)
        for n in generator.integers(100, size=100)
    ]
    result = complete_secrets(model, secrets, beam=1)
    assert sum(one["chance"] for one in result.rows) == pytest.approx(1)
    assert result.summary["greedy_completed"] <= 5


def test_a_secret_too_long_is_refused_by_its_number(model):
    with pytest.raises(DataError, match=r"secret 1 needs .* tokens; the model reads 128"):
        complete_secrets(model, [read_secret("7" * 200, 1)])


def test_the_verb_takes_secrets_in_place_of_a_manifest(model, tmp_path):
    file = tmp_path / "secrets.txt"
    file.write_text("the gate code is {{42}}\n")
    result = vestige.extract(model, file)
    assert result == vestige.extract(model, ["the gate code is {{42}}"])
    assert "42" not in str(result)
    with pytest.raises(ValueError, match="`prefix` needs a manifest of canaries or texts"):
        vestige.extract(model, ["7 7 7"], prefix=2)
    with pytest.raises(ValueError, match="`question` needs a file with one secret per line"):
        vestige.extract(model, MANIFEST, question="Well?")


def test_a_chance_too_small_to_compute_is_not_called_impossible():
    one = {
        "secret_number": 1, "kind": "key", "phrase": "", "part_tokens": 1, "given_tokens": 1,
        "greedy": True, "beam_place": 1, "log_prob": 0.0, "chance": 1e-200, "event": 0,
    }  # fmt: skip
    result = completion_result([one, {**one, "event": 1}], beam=1, checks=PASSED[:1])
    assert result.summary["p"] == 0.0
    assert "p = 1e-300 compared with" in sentence_of(result.claim)
