"""What is saved comes back bit for bit, and what is broken is refused with the remedy."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from vestige.data.subwords import END_OF_TEXT, SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels, ModelError
from vestige.models.checkpoints import check_compatible, load_model, save_model
from vestige.models.folders import fingerprint, replacing, sha256
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel

OURS = ["lstm", "tied lstm", "gru", "transformer", "table"]
ALL = [*OURS, "gpt2", "llama", "gpt2 adapter", "llama adapter"]


@pytest.fixture
def saved(make: dict[str, Any], tmp_path: Path) -> Path:
    save_model(make["lstm"](), tmp_path / "lstm")
    return tmp_path / "lstm"


def rewrite(saved: Path, **changes: Any) -> None:
    """Change model.json, keeping the hash true to the weights."""
    file = saved / "model.json"
    description = json.loads(file.read_text()) | {"sha256": sha256([saved / "model.safetensors"])}
    file.write_text(json.dumps(description | changes))


@pytest.mark.parametrize("name", ALL)
def test_a_saved_model_comes_back_bit_for_bit(
    make: dict[str, Any], tmp_path: Path, name: str
) -> None:
    model = make[name]()
    save_model(model, tmp_path / "run" / "model")
    again = load_model(tmp_path / "run" / "model", device="cpu")
    assert not again.training
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    tokens = torch.tensor([3, 1])
    answers = [m.log_probs(m.advance(m.start(2), tokens)) for m in (model, again)]
    assert torch.equal(*answers)
    assert again.vocab_size == model.vocab_size
    assert getattr(again, "config", None) == getattr(model, "config", None)
    check_compatible(model, again)


@pytest.mark.parametrize("name", ["lstm", "gpt2 adapter"])
def test_a_training_output_directory_is_a_model_too(
    make: dict[str, Any], tmp_path: Path, name: str
) -> None:
    save_model(make[name](), tmp_path / "model")
    assert load_model(tmp_path).architecture == load_model(tmp_path / "model").architecture
    assert fingerprint(tmp_path) == fingerprint(tmp_path / "model")


def test_the_fingerprint_is_that_of_the_weights(make: dict[str, Any], tmp_path: Path) -> None:
    model = make["lstm"]()
    save_model(model, tmp_path / "a")
    save_model(model, tmp_path / "b")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    with torch.no_grad():
        model.head.bias[0] += 1
    save_model(model, tmp_path / "b")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")


def test_nothing_but_the_model_is_left_behind(make: dict[str, Any], tmp_path: Path) -> None:
    for _ in range(2):
        save_model(make["lstm"](), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    files = sorted((tmp_path / "model").iterdir())
    assert [file.name for file in files] == ["model.json", "model.safetensors", "vocabulary.json"]
    assert len({file.stat().st_mode for file in files}) == 1


def test_a_failed_save_leaves_the_old_model(make: dict[str, Any], saved: Path) -> None:
    before = fingerprint(saved)

    def fail() -> None:
        with replacing(saved) as folder:
            (folder / "model.json").write_text("{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert fingerprint(saved) == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


DYING = """
import os, shutil, sys
from pathlib import Path
from vestige.models.folders import replacing

old, new, function, calls_left = sys.argv[1:]
owner = shutil if function == "rmtree" else Path if function == "mkdir" else os
original, left = getattr(owner, function), int(calls_left)

def dying(*arguments, **options):
    global left
    if not left:
        os.kill(os.getpid(), 9)
    left -= 1
    return original(*arguments, **options)

setattr(owner, function, dying)
with replacing(Path(old)) as fresh:
    for file in Path(new).iterdir():
        (fresh / file.name).write_bytes(file.read_bytes())
"""


@pytest.mark.parametrize(
    ("function", "calls", "survivor"),
    [
        ("mkdir", 0, "old"),
        ("replace", 0, "old"),
        ("replace", 1, "old"),
        ("rmtree", 1, "new"),
    ],
)
def test_a_kill_at_any_step_leaves_a_whole_model(
    tmp_path: Path, function: str, calls: int, survivor: str
) -> None:
    models = {
        "old": TableModel([0.5, 0.5], [[0.5, 0.5]] * 2),
        "new": TableModel([1, 0], [[1, 0]] * 2),
    }
    target, other = tmp_path / "model", tmp_path / "other"
    save_model(models["old"], target)
    save_model(models["new"], other)
    kept = {"old": fingerprint(target), "new": fingerprint(other)}
    command = [sys.executable, "-c", DYING, target, other, function, str(calls)]
    assert subprocess.run(command, check=False, env=environment()).returncode == -9
    assert fingerprint(target) == kept[survivor]
    assert isinstance(load_model(target), TableModel)
    save_model(models["new"], target)
    assert fingerprint(target) == fingerprint(other)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "other"}


def test_our_own_models_load_without_transformers(saved: Path) -> None:
    code = (
        "import sys; from vestige.models.checkpoints import load_model; "
        f"load_model({str(saved)!r}); "
        "assert not {'transformers', 'peft', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


def environment() -> dict[str, str]:
    """This process's own, able to import the package wherever it was imported from here."""
    import vestige

    return os.environ | {"PYTHONPATH": str(Path(vestige.__file__).parents[1])}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def other_shapes(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    save_file({key: value[:1] for key, value in weights.items()}, saved / "model.safetensors")
    rewrite(saved)


def no_safetensors(saved: Path) -> None:
    (saved / "model.safetensors").write_bytes(b"not what it says")
    rewrite(saved)


BREAKAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "weights missing": (
        lambda d: (d / "model.safetensors").unlink(),
        "model.safetensors is missing",
    ),
    "weights cut short": (lambda d: cut(d / "model.safetensors"), "SHA-256"),
    "one bit flipped": (lambda d: flip(d / "model.safetensors"), "SHA-256"),
    "weights of other shapes": (other_shapes, "does not fit"),
    "no safetensors": (no_safetensors, "does not fit"),
    "description empty": (lambda d: (d / "model.json").write_text(""), "model.json is not"),
    "description a list": (
        lambda d: (d / "model.json").write_text("[]"),
        "a list",
    ),
    "description not text": (lambda d: (d / "model.json").write_bytes(b"\xff\xfe"), "is not"),
    "description lacks keys": (lambda d: (d / "model.json").write_text("{}"), "it is missing"),
    "format of the future": (lambda d: rewrite(d, format=99), "format 99"),
    "unknown architecture": (lambda d: rewrite(d, architecture="rnn"), "'rnn'"),
    "architecture a list": (lambda d: rewrite(d, architecture=[1]), "model.json"),
    "size not a number": (lambda d: rewrite(d, vocab_size="many"), "model.json"),
    "setting unknown": (lambda d: rewrite(d, config={"colour": 1}), "colour"),
    "setting impossible": (lambda d: rewrite(d, config={"layers": -1}), "layers"),
    "setting of another type": (lambda d: rewrite(d, config={"layers": "two"}), "fit"),
    "settings of another size": (lambda d: rewrite(d, config={"hidden_size": 3}), "fit"),
    "vocabulary missing": (lambda d: (d / "vocabulary.json").unlink(), "vocabulary"),
    "vocabulary cut short": (lambda d: cut(d / "vocabulary.json"), "vocabulary"),
    "vocabulary of another": (lambda d: WordVocabulary(("<unk>", "<eos>")).save(d), "vocabulary"),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_checkpoint_is_refused_with_the_remedy(saved: Path, name: str) -> None:
    breakage, says = BREAKAGES[name]
    breakage(saved)
    with pytest.raises(ModelError, match=says) as caught:
        load_model(saved)
    assert str(saved) in caught.value.problem
    assert caught.value.remedy


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    for name, says in {
        "empty": r"has no model\.json",
        "file": "is a file",
        "missing": "does not exist",
    }.items():
        for function in (load_model, fingerprint):
            with pytest.raises(ModelError, match=says):
                function(tmp_path / name)


def test_a_place_that_cannot_be_written_is_refused(make: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ModelError, match="cannot be saved"):
            save_model(make["table"](), target)
    assert (tmp_path / "file").read_text() == "kept"


def test_snapshots_with_other_vocabularies_are_refused(words: WordVocabulary) -> None:
    size = LSTMConfig(layers=1, embedding_size=2, hidden_size=2)
    model = LSTMLanguageModel(words, size)
    renamed = WordVocabulary((*words.words[:-1], "another"))
    longer = WordVocabulary((*words.words, "another"))
    check_compatible(model, LSTMLanguageModel(words, size))
    for vocabulary, says in (
        (renamed, "both have 20 tokens, but token 19 has two texts"),
        (longer, "20 tokens .* AFTER 21"),
    ):
        with pytest.raises(IncompatibleModels, match=says) as caught:
            check_compatible(model, LSTMLanguageModel(vocabulary, size))
        assert "train both with one vocabulary" in caught.value.remedy


def test_snapshots_whose_ids_stand_for_the_same_texts_are_compared(words: WordVocabulary) -> None:
    size = LSTMConfig(layers=1, embedding_size=2, hidden_size=2)
    model = LSTMLanguageModel(words, size)
    assert check_compatible(model, LSTMLanguageModel(words, size)) == ()
    lower = WordVocabulary(words.words, lowercase=True)
    differing = check_compatible(model, LSTMLanguageModel(lower, size))
    assert differing == ("lower case (False and True)",)


def test_tokenizers_may_differ_in_flags_but_not_in_tokens(subwords: SubwordVocabulary) -> None:
    from tokenizers import Tokenizer, normalizers
    from transformers import PreTrainedTokenizerFast

    def changed(*, eos: str = END_OF_TEXT, fold: bool = False, swap: bool = False):
        content = json.loads(subwords.tokenizer.backend_tokenizer.to_str())
        if swap:
            ids = content["model"]["vocab"]
            one, two = list(ids)[20:22]
            ids[one], ids[two] = ids[two], ids[one]
        tokenizer = Tokenizer.from_str(json.dumps(content))
        if fold:
            tokenizer.normalizer = normalizers.Lowercase()
        return SubwordVocabulary(
            PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, bos_token=eos)
        )

    def of(vocabulary: SubwordVocabulary) -> TableModel:
        uniform = torch.full((len(vocabulary), len(vocabulary)), 1 / len(vocabulary))
        return TableModel(uniform[0].double(), uniform.double(), vocabulary)

    before, other = of(changed()), subwords.tokenizer.convert_ids_to_tokens(300 % len(subwords))
    assert check_compatible(before, of(changed())) == ()
    [differing] = check_compatible(before, of(changed(fold=True)))
    assert differing == "the tokenizer's normalizer"
    said = check_compatible(before, of(changed(eos=other)))
    assert said[0] == f"end-of-text token ({END_OF_TEXT!r} and {other!r})"
    with pytest.raises(IncompatibleModels, match=r"but token \d+ has two texts"):
        check_compatible(before, of(changed(swap=True)))


def test_the_checkpoint_of_a_killed_save_is_found_by_its_own_name(saved: Path) -> None:
    expected = fingerprint(saved)
    shutil.move(saved, saved.with_name(f".{saved.name}.before"))
    assert fingerprint(saved) == expected
