"""Subword vocabularies, and hostile tokenizers."""

import base64
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, processors
from transformers import PreTrainedTokenizerFast

from vestige.data.corpus import Corpus
from vestige.data.regular_expressions import slow_reason
from vestige.data.subwords import END_OF_TEXT, SubwordVocabulary, require_sound
from vestige.data.vocabulary import Vocabulary, load_vocabulary
from vestige.errors import DataError


@pytest.fixture(scope="module")
def subwords(corpus):
    return SubwordVocabulary.train_bpe(corpus, size=500)


def test_bpe_learns_the_requested_number_of_tokens(subwords):
    assert isinstance(subwords, Vocabulary)
    assert len(subwords) == 500
    assert subwords.piece(subwords.eos_id) == END_OF_TEXT
    assert subwords.piece(507) == "<507>"  # beyond the tokenizer's ids
    assert subwords.unk_id is None


BYTES = SubwordVocabulary.train_bpe(Corpus.from_texts(["a b c"]), size=257)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_encoding_any_text_is_lossless(text):
    assert BYTES.decode(BYTES.encode(text)) == text


def test_encodings_have_no_end_token_and_pieces_keep_spaces(subwords):
    text = "people always needed better companies"
    assert "".join(subwords.piece(token) for token in subwords.encode(text)) == text
    rows = subwords.encode_batch([text, "", "waited"])
    assert rows[0] == subwords.encode(text)
    assert rows[1] == []
    assert all(subwords.eos_id not in row for row in rows)


def test_saving_and_loading_is_lossless(subwords, tmp_path):
    subwords.save(tmp_path)
    loaded = load_vocabulary(tmp_path)
    assert loaded.fingerprint() == subwords.fingerprint()
    assert (loaded.eos_id, loaded.unk_id, len(loaded)) == (subwords.eos_id, None, 500)
    assert loaded.encode("public people") == subwords.encode("public people")


def test_the_fingerprint_ignores_truncation(subwords, corpus):
    again = SubwordVocabulary.train_bpe(corpus, size=500)
    again.tokenizer.backend_tokenizer.enable_truncation(8)
    assert again.fingerprint() == subwords.fingerprint()
    assert SubwordVocabulary.train_bpe(corpus, size=499).fingerprint() != subwords.fingerprint()


def test_a_tokenizer_may_have_an_unknown_token(corpus):
    inner = SubwordVocabulary.train_bpe(corpus, size=300).tokenizer.backend_tokenizer
    special = {"eos_token": END_OF_TEXT, "unk_token": "<unk>"}
    vocabulary = SubwordVocabulary(PreTrainedTokenizerFast(tokenizer_object=inner, **special))
    assert (vocabulary.unk_id, len(vocabulary)) == (300, 301)


def test_an_invalid_vocabulary_is_refused(subwords):
    bare = PreTrainedTokenizerFast(tokenizer_object=subwords.tokenizer.backend_tokenizer)
    with pytest.raises(DataError, match="no end-of-text token"):
        SubwordVocabulary(bare)
    with pytest.raises(DataError, match="no fast version"):
        SubwordVocabulary(object())
    with pytest.raises(DataError, match="empty corpus"):
        SubwordVocabulary.train_bpe(Corpus.from_texts([]), size=300)
    with pytest.raises(ValueError, match="size must be at least 257"):
        SubwordVocabulary.train_bpe(Corpus.from_texts(["a"]), size=256)


@pytest.mark.slow
def test_word_vocabularies_do_not_import_transformers():
    code = (
        "import sys, vestige.data.vocabulary, vestige.data.canaries.coins, vestige.data.encoded\n"
        "import vestige.data.formats.utterances, vestige.data.subwords, vestige.data.corpus\n"
        "slow = {'torch', 'transformers', 'tokenizers', 'datasets', 'pandas'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Hostile tokenizers are refused in bounded time and memory.


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    SubwordVocabulary.train_bpe(Corpus.from_texts(["hot tea and cold tea"]), size=262).save(folder)
    return folder


def charsmap(content):
    text = base64.b64encode(content).decode()
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": text}}


def split(pattern):
    part = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"pre_tokenizer": part}


PADDING = {
    "strategy": {"Fixed": 10**12}, "pad_to_multiple_of": None,
    "pad_id": 0, "pad_type_id": 0, "pad_token": "a", "direction": "Right",
}  # fmt: skip
HOSTILE = {
    "a map of four bytes that expands to 8.6 GB": charsmap(b"\xff\xff\xff\xff"),
    "a map larger than its content": charsmap(b"\x00\x01\x00\x00" + b"\x00" * 16),
    "a map of an odd size": charsmap(b"\x03\x00\x00\x00" + b"\x00" * 8),
    "a map without a trie": charsmap(b"\x00\x00\x00\x00"),
    "a map whose trie leads outside": charsmap(b"\x08\x00\x00\x00" + b"\xff" * 8 + b"a\x00"),
    "a map that is no base64": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"}},
    "unlimited padding": {"padding": PADDING},
    "nested repetitions": split(r"(a+)+$"),
    "an invalid pattern": split(r"("),
    "a pattern of a megabyte": split("a" * 10**6),
    "an id beyond all tokens": lambda content: content["added_tokens"][0].update(id=2**31),
    "an id beyond 32 bits": lambda content: content["added_tokens"][0].update(id=2**40),
    "a negative id": lambda content: content["added_tokens"][0].update(id=-1),
    "another kind of model": {"model": {"type": "WordLevel"}},
    "merges of unknown words": lambda content: content["model"].update(merges=[["zz", "yy"]]),
    "an id that is text": lambda content: content["model"]["vocab"].update(zz="1"),
    "a huge id of a word": lambda content: content["model"]["vocab"].update(zz=2**31),
    "no vocabulary": lambda content: content["model"].pop("vocab"),
    "an unknown decoder": {"decoder": {"type": "Strange"}},
    "a number in place of steps": {"normalizer": {"type": "Sequence", "normalizers": 3}},
    "a number in place of a template": {
        "post_processor": {"type": "TemplateProcessing", "single": 7, "special_tokens": {}}
    },
    "a future version": {"version": "9.0"},
}


FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
DAMAGED = [
    ("tokenizer.json", ""),
    ("tokenizer.json", '{"version": "1.0", "model": 3}'),
    *((file, '{"a": 1, "a": 2}') for file in FILES),
]


@pytest.fixture
def folder(sound, tmp_path):
    return Path(shutil.copytree(sound, tmp_path / "tokenizer"))


@pytest.mark.slow
@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tokenizer_is_refused(change, folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    change(content) if callable(change) else content.update(change)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError) as caught:
        load_vocabulary(folder).encode("hot ﬁ tea")
    assert "token" in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_the_error_about_a_damaged_tokenizer_names_its_file(name, content, folder):
    (folder / name).write_text(content)
    with pytest.raises(DataError, match=re.escape(name)) as caught:
        load_vocabulary(folder)
    assert str(folder) in str(caught.value)


FAST_PATTERNS = [
    r".*\.(q_proj|v_proj)",
    r"^(?!.*vision).*(q_proj|k_proj).*",
    r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+",
    r"[\p{Lu}\p{Lt}]*[\p{Ll}\p{Lm}]+(?i:'s|'t)?|\s+",
    r"[(a+)]+\(+",
]
SLOW_PATTERNS = [r"(a+)+", r"(a*)*b", r"((ab)*c)+", r"(a|b{2,})+", r"(x+x+)+y", "a" * 10**5]


def test_slow_and_fast_patterns_are_distinguished():
    assert [p for p in FAST_PATTERNS if slow_reason(p, longest=10_000)] == []
    assert [p for p in SLOW_PATTERNS if not slow_reason(p, longest=10_000)] == []
    assert slow_reason(".*.*.*.*x", longest=99, repetitions=3) == "it repeats in 4 places"
    start = time.perf_counter()
    for pattern in FAST_PATTERNS[:2]:
        re.fullmatch(pattern, "model.layers.11.self_attn.other_projection_of_some_kind" * 3)
    assert time.perf_counter() - start < 1


# Tokenizers that make texts much longer

LONGER = {
    "one replacement": normalizers.Replace("z", "z" * 10**6),
    "many replacements": normalizers.Sequence([normalizers.Replace("z", "z" * 100)] * 5),
    "a long prefix": normalizers.Prepend("z" * 10**6),
}
COMMON = normalizers.Sequence(
    [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.Replace("``", '"')]
)


def save_tokenizer(tmp_path, **parts):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "z": 1}, "[UNK]"))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize("normalizer", LONGER.values(), ids=LONGER)
def test_growing_replacements_are_refused_and_common_ones_accepted(tmp_path, normalizer):
    require_sound(save_tokenizer(tmp_path, normalizer=COMMON))
    with pytest.raises(DataError, match=r"tokenizer\.json cannot be used"):
        require_sound(save_tokenizer(tmp_path, normalizer=normalizer))


def test_a_template_of_many_tokens_is_refused(tmp_path):
    template = processors.TemplateProcessing(single="[A] $A", special_tokens=[("[A]", 1)])
    path = save_tokenizer(tmp_path, post_processor=template)
    content = json.loads(path.read_text())
    many = {"ids": [1] * 10**5, "tokens": ["z"] * 10**5}
    content["post_processor"]["special_tokens"]["[A]"].update(many)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="adds more than 1000 tokens"):
        require_sound(path)


# The process that tests a tokenizer

CHECK = """
import sys
from pathlib import Path
from vestige.data.subwords import require_sound
require_sound(Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds are Linux's")
def test_a_sound_tokenizer_is_accepted_under_a_cpu_limit_of_the_shell(tmp_path):
    SubwordVocabulary.train_bpe(Corpus.from_texts(["the gate"] * 4), size=260).save(tmp_path)
    command = ["bash", "-c", 'ulimit -t 60 && exec "$@"', "bash"]
    command += [sys.executable, "-c", CHECK, str(tmp_path / "tokenizer.json")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
