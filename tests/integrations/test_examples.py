"""The examples run, with few lines of Vestige."""

import json
import math
import os
import subprocess
import sys

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

import vestige
from tests.audits.stories import sentences
from tests.docs.documents import REPOSITORY
from tests.integrations.worlds import tokenizer
from vestige.results import load

EXAMPLES = REPOSITORY / "examples"


def code_of(name: str) -> str:
    """A script, or the code of a notebook's cells."""
    text = (EXAMPLES / name).read_text()
    if not name.endswith(".ipynb"):
        return text
    cells = json.loads(text)["cells"]
    code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return "\n".join(code) + "\n"


@pytest.mark.parametrize("name", ["trainer.py", "sft_chat.py", "trainer.ipynb"])
def test_four_lines_measure(name):
    """Without the lines that are ours, a script is one that trains."""
    lines = code_of(name).splitlines()
    ours = [line for line in lines if line.endswith("# vestige")]
    assert len(ours) == 4
    theirs = "\n".join(line for line in lines if line not in ours)
    compile(theirs, name, "exec")
    assert "LeakageCallback" not in theirs
    assert "plant(" not in theirs


@pytest.fixture
def given(tmp_path):
    """A small model, and texts."""
    words = tokenizer()
    sizes = {"n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    ends = {"bos_token_id": words.eos_token_id, "eos_token_id": words.eos_token_id}
    GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes, **ends)).save_pretrained(tmp_path / "m")
    words.save_pretrained(tmp_path / "m")
    rows = [json.dumps({"text": text}) for text in sentences(600, seed=0)]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    return tmp_path / "m", tmp_path / "texts.jsonl"


@pytest.mark.slow
def test_the_script_for_trainer_trains_and_measures(given, tmp_path):
    out = ["--out", tmp_path / "out", "--epochs", "0.2"]
    words = [sys.executable, EXAMPLES / "trainer.py", *given, *out]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = load(tmp_path / "out" / "leakage" / "exposure")
    model, canaries = tmp_path / "out" / "model", tmp_path / "out" / "canaries"
    again = vestige.exposure(model, canaries, references=256)
    measured = found.summary["exposure_planted"]
    assert math.isclose(measured, again.summary["exposure_planted"], abs_tol=1e-6)
    assert (tmp_path / "out" / "leakage" / "page.html").is_file()


@pytest.mark.slow
def test_the_notebook_trains_and_measures(given, tmp_path):
    (tmp_path / "notebook.py").write_text(code_of("trainer.ipynb"))
    told = {"MODEL": str(given[0]), "TEXTS": str(given[1]), "OUT": str(tmp_path / "out")}
    words = [sys.executable, tmp_path / "notebook.py"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | told, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert load(tmp_path / "out" / "leakage" / "exposure").summary["exposure_planted"] > 0
