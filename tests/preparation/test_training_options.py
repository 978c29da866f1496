"""Options of `train`: what they give to a training, and how the command line has them."""

import re
import subprocess
import sys
from dataclasses import fields

import pytest

from vestige.cli.app import run
from vestige.cli.options import flags_of
from vestige.preparation.options import LearningOptions, ModelOptions, TrainingOptions
from vestige.preparation.train import train
from vestige.training.config import TrainingConfig


def test_only_what_was_asked_for_is_chosen():
    asked = TrainingOptions(epochs=3, momentum=0.0, stop_at_perplexity=9.0)
    assert asked.chosen == {"epochs": 3, "momentum": 0.0}
    assert asked.given["batch_size"] is None
    assert "stop_at_perplexity" not in asked.given
    assert LearningOptions(epochs=3).chosen == {"epochs": 3}


def test_every_setting_is_one_of_the_configuration():
    names = {field.name for field in fields(TrainingConfig)}
    assert set(TrainingOptions().given) <= names


def test_a_shape_has_the_sizes_that_were_asked_for():
    assert ModelOptions(layers=2, hidden_size=8).shape == {"layers": 2, "hidden_size": 8}
    assert ModelOptions().shape == {}


def test_every_option_has_help_and_one_place(capsys):
    assert run(["train", "--help"]) == 0
    said = capsys.readouterr().out
    names = re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE)
    assert sorted(names) == sorted(set(flags_of(train).values()) - {"DATA"})
    for name in names:
        assert re.search(rf"^  {name}( [A-Z]+)?(  |\n {{20}}) *[A-Za-z]", said, re.MULTILINE), name


@pytest.mark.parametrize("module", ["vestige.preparation.train", "vestige.defences.registry"])
def test_options_are_known_without_torch(module):
    code = (
        f"import sys, {module}; from vestige.cli.app import flags_of; "
        "from vestige.preparation.train import train; flags_of(train); "
        "print(sorted({'torch', 'numpy', 'pyarrow', 'opacus'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
