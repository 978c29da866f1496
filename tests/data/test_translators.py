import shutil
import stat
import sys
from pathlib import Path

import pytest

from vestige.data.corpus import Corpus
from vestige.data.obfuscation import back_translated, words_kept
from vestige.data.translators import Apertium, HuggingFaceTranslator
from vestige.errors import DataError


def command(tmp_path: Path, body: str) -> str:
    """A program that stands for apertium, with what it is told in `said` and `argv`."""
    path = tmp_path / "apertium"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nargv, said = sys.argv[1:], sys.stdin.read()\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_every_text_comes_back_in_its_place(tmp_path: Path) -> None:
    body = "print(said.upper(), end='')"
    translate = Apertium("eng-spa", command=command(tmp_path, body))
    assert translate(["one\n\ntwo ", "", " ", "drei é"]) == ["ONE TWO", "", "", "DREI É"]
    assert translate(["", " "]) == ["", ""]


def test_the_direction_is_told_and_unknown_words_are_not_marked(tmp_path: Path) -> None:
    translate = Apertium("spa-eng", command=command(tmp_path, "print(*argv)"))
    assert translate(["x"]) == ["-u -f txt spa-eng"]


def test_texts_that_run_together_are_translated_in_smaller_parts(tmp_path: Path) -> None:
    body = "print(said.replace('b\\n\\n', 'b '), end='')"
    translate = Apertium("eng-spa", command=command(tmp_path, body))
    assert translate(["a", "b", "c", "d"]) == ["a", "b", "c", "d"]


def test_one_text_is_one_text_whatever_its_translation_looks_like(tmp_path: Path) -> None:
    translate = Apertium("eng-spa", command=command(tmp_path, "print('a\\n\\nb')"))
    assert translate(["c"]) == ["a b"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('no such mode', file=sys.stderr); sys.exit(1)", "failed with code 1: no such mode"),
        ("pass", "failed with code 0"),
        ("import time; time.sleep(60)", "did not translate: TimeoutExpired"),
    ],
)
def test_a_command_that_fails_is_named(body: str, says: str, tmp_path: Path) -> None:
    translate = Apertium("eng-spa", command=command(tmp_path, body), timeout=3)
    with pytest.raises(DataError, match=says):
        translate(["hello"])


def test_a_command_that_is_not_installed_is_named_with_its_package() -> None:
    with pytest.raises(DataError, match="apertium-of-nowhere is not installed") as caught:
        Apertium("eng-spa", command="apertium-of-nowhere")(["hello"])
    assert "apertium-eng-spa" in caught.value.remedy


@pytest.mark.peer
@pytest.mark.skipif(
    shutil.which("apertium") is None, reason="apertium is not installed: make peers"
)
def test_the_real_apertium_goes_to_spanish_and_back() -> None:
    corpus = Corpus.from_texts(["I see so many adults that could benefit from this.", "lol"] * 20)
    try:
        made = back_translated(corpus, Apertium("eng-spa"), Apertium("spa-eng"))
    except DataError as error:
        pytest.skip(str(error))
    assert len(made) == 40
    assert 0.2 < words_kept(corpus, made) < 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained encoder-decoder with its tokenizer, as the hub holds them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    words = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", "one", "two"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    sizes = dict.fromkeys(["d_model", "encoder_ffn_dim", "decoder_ffn_dim"], 8)
    layers = dict.fromkeys(["encoder_layers", "decoder_layers"], 1)
    heads = dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 2)
    config = BartConfig(
        vocab_size=len(words), max_position_embeddings=40, **sizes, **layers, **heads
    )
    BartForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_a_translation_model_gives_as_many_texts_in_any_batches(model: Path) -> None:
    texts = ["one two", "two", "one one one", ""]
    made = [HuggingFaceTranslator(model, batch=n, longest=6)(texts) for n in (1, 3)]
    assert [len(part) for part in made] == [4, 4]
    assert made[0][3] == made[1][3] == ""
    assert all(isinstance(text, str) for text in made[0])
    assert HuggingFaceTranslator(model)([]) == []


def test_a_model_is_read_only_when_it_is_needed(tmp_path: Path) -> None:
    translate = HuggingFaceTranslator(tmp_path)
    with pytest.raises(DataError, match="is not a readable translation model") as caught:
        translate(["one"])
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"longest": 0}])
def test_a_translator_without_room_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be positive, got 0"):
        HuggingFaceTranslator("any/model", **wrong)
