"""A tokenizer is tried by another process, whatever bounds this one has itself."""

import subprocess
import sys

import pytest

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary

CHECK = """
import sys
from pathlib import Path
from vestige.data.tokenizer_file import require_sound
require_sound(Path(sys.argv[1]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds are Linux's")
def test_a_sound_tokenizer_is_read_where_the_shell_allows_less(tmp_path):
    SubwordVocabulary.train_bpe(Corpus.from_texts(["the gate"] * 4), size=260).save(tmp_path)
    words = [sys.executable, "-c", CHECK, str(tmp_path / "tokenizer.json")]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -t 60 && exec "$@"', "bash", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
