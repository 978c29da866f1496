"""A tokenizer that makes texts far longer would fill the memory: it is refused before use."""

import json

import pytest
from tokenizers import Tokenizer, models, normalizers, processors

from vestige.data.tokenizer_file import require_sound
from vestige.errors import DataError

GROWING = {
    "one replacement": normalizers.Replace("z", "z" * 10**6),
    "many replacements": normalizers.Sequence([normalizers.Replace("z", "z" * 100)] * 5),
    "what is put before": normalizers.Prepend("z" * 10**6),
}


def written(tmp_path, change):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "z": 1}, "[UNK]"))
    change(tokenizer)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize("kind", GROWING)
def test_replacements_that_grow_are_refused(tmp_path, kind):
    path = written(tmp_path, lambda made: setattr(made, "normalizer", GROWING[kind]))
    with pytest.raises(DataError, match=r"tokenizer\.json cannot be used"):
        require_sound(path)


def test_a_template_of_many_tokens_is_refused(tmp_path):
    path = written(
        tmp_path,
        lambda made: setattr(
            made,
            "post_processor",
            processors.TemplateProcessing(single="[A] $A", special_tokens=[("[A]", 1)]),
        ),
    )
    content = json.loads(path.read_text())
    content["post_processor"]["special_tokens"]["[A]"]["ids"] = [1] * 10**5
    content["post_processor"]["special_tokens"]["[A]"]["tokens"] = ["z"] * 10**5
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="adds more than 1000 tokens"):
        require_sound(path)


def test_what_real_tokenizers_replace_is_taken(tmp_path):
    usual = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.Replace("``", '"')]
    )
    require_sound(written(tmp_path, lambda made: setattr(made, "normalizer", usual)))
