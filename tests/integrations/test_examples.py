"""The examples run, with four lines of Vestige in each."""

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
def test_an_example_without_its_four_marked_lines_is_a_training(name):
    lines = code_of(name).splitlines()
    remaining = [line for line in lines if not line.endswith("# vestige")]
    assert len(lines) - len(remaining) == 4
    code = "\n".join(remaining)
    compile(code, name, "exec")
    assert "LeakageCallback" not in code
    assert "plant(" not in code


@pytest.fixture
def inputs(tmp_path):
    """A small model, and texts."""
    words = tokenizer()
    sizes = {"n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    ends = {"bos_token_id": words.eos_token_id, "eos_token_id": words.eos_token_id}
    GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes, **ends)).save_pretrained(tmp_path / "m")
    words.save_pretrained(tmp_path / "m")
    rows = [json.dumps({"text": text}) for text in sentences(600, seed=0)]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    return tmp_path / "m", tmp_path / "texts.jsonl"


def run(*words, **environment):
    command = [sys.executable, *words]
    env = os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_the_script_trains_and_measures(inputs, tmp_path):
    out = tmp_path / "out"
    run(EXAMPLES / "trainer.py", *inputs, "--out", out, "--epochs", "0.2")
    measured = load(out / "leakage" / "exposure").summary["exposure_planted"]
    audited = vestige.exposure(out / "model", out / "canaries", references=256)
    assert math.isclose(measured, audited.summary["exposure_planted"], abs_tol=1e-6)
    assert (out / "leakage" / "page.html").is_file()


@pytest.mark.slow
def test_the_notebook_trains_and_measures(inputs, tmp_path):
    (tmp_path / "notebook.py").write_text(code_of("trainer.ipynb"))
    model, texts = map(str, inputs)
    run(tmp_path / "notebook.py", MODEL=model, TEXTS=texts, OUT=str(tmp_path / "out"))
    assert load(tmp_path / "out" / "leakage" / "exposure").summary["exposure_planted"] > 0
