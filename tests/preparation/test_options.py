"""Options of `train` and of defences: what they give, and which tasks have them."""

import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, fields
from importlib import metadata

import pytest
from cyclopts import Parameter

from vestige.cli.app import run
from vestige.cli.options import flags_of
from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Goldfish
from vestige.defences.registry import DEFENCES, NoDefence
from vestige.preparation import defence_options
from vestige.preparation.defence_options import DefenceOptions, as_defence, as_options
from vestige.preparation.options import (
    LearningOptions,
    ModelOptions,
    TrainingOptions,
    reject_others,
)
from vestige.preparation.train import ONLY, train
from vestige.registry import Registry
from vestige.session import Session
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


@pytest.mark.slow
@pytest.mark.parametrize("module", ["vestige.preparation.train", "vestige.defences.registry"])
def test_options_are_known_without_torch(module):
    code = (
        f"import sys, {module}; from vestige.cli.app import flags_of; "
        "from vestige.preparation.train import train; flags_of(train); "
        "print(sorted({'torch', 'numpy', 'pyarrow', 'opacus'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


TASKS = {("text", "pairs"): ("width",), ("nlu",): ("column",)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape."""

    width: int | None = None
    depth: int = 2


DEFAULTS = {"task": "text", "shape": Shape(), "column": "tokens", "seed": 0}


def refused(**given):
    run = Session("learn", {**DEFAULTS, **given}, defaults=DEFAULTS)
    reject_others(run, run.arguments["task"], TASKS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"task": "text", "shape": Shape(width=4), "seed": 3},
        {"task": "pairs", "shape": Shape(width=4, depth=1)},
        {"task": "nlu", "shape": Shape(depth=9), "column": "words"},
        {"task": "text", "shape": Shape(), "column": "tokens"},
    ],
)
def test_options_of_the_task_and_defaults_of_others_are_let_through(arguments):
    refused(**arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"task": "text", "column": "words"}, "`column` needs `task` nlu"),
        ({"task": "nlu", "shape": Shape(width=4)}, "`width` needs `task` text or pairs"),
    ],
)
def test_an_option_of_another_task_is_refused_with_the_tasks_that_have_it(arguments, says):
    with pytest.raises(ValueError, match=f"^{says}$"):
        refused(**arguments)


def test_the_options_of_one_task_exist():
    known = {name.rstrip("_") for name in flags_of(train)}
    assert {name for names in ONLY.values() for name in names} <= known


THEIRS = '''
    from dataclasses import dataclass
    from typing import ClassVar
    from vestige.defences.registry import register

    @register
    @dataclass(frozen=True, kw_only=True)
    class Halved:
        """Half of every gradient.

        Attributes:
            share: Share of the gradient that is kept.
            steps: Steps at the beginning that are left alone.
        """

        name: ClassVar[str] = "halved"
        steps: int
        share: float = 0.5
'''


def test_a_name_with_its_settings_is_a_defence():
    options = DefenceOptions(defence="dp-sgd", epsilon=8.0, max_grad_norm=0.5)
    assert as_defence(options) == DPSGD(epsilon=8.0, max_grad_norm=0.5)
    assert as_defence(DefenceOptions()) == as_defence(None) == NoDefence()
    own = Goldfish(k=3)
    assert as_defence(own) is own


@pytest.mark.parametrize(
    "defence", [DPSGD(epsilon=8.0, physical_batch_size=2), Goldfish(k=3), Goldfish()]
)
def test_a_defence_is_recorded_as_options_that_make_it(defence):
    assert as_defence(as_options(defence)) == defence


def test_every_setting_is_an_option_of_all_its_defences():
    names = {one.name for one in fields(DefenceOptions)}
    assert {"epsilon", "weight", "pairing", "k", "unit", "local_epochs"} <= names
    assert "context" not in names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--noise-multiplier", "1"], "--noise-multiplier needs --defence dp-fedavg or dp-sgd"),
        (["--defence", "goldfish", "--clip", "1"], "--clip needs --defence dp-fedavg or dp-sgd"),
        (["--defence", "dp-fedavg", "--unit", "user"], "--unit needs --defence dp-sgd"),
        (["--defence", "dp-sgd"], "--defence dp-sgd must come with one of --epsilon"),
        (["--defence", "hope"], "--defence must be one of none, adversarial, dp-fedavg"),
        (["--defence", "goldfish", "--goldfish-k", "1"], "--goldfish-k must be"),
        (["--defence", "goldfish", "--goldfish-k", "2.5"], "--goldfish-k must be a whole number"),
        (["--defence", "dp-sgd", "--epsilon", "none"], "--epsilon must be a number"),
        (["--defence", "dp-sgd", "--epsilon", "-1"], "--epsilon must be positive"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path, capsys, words, message):
    (tmp_path / "a.txt").write_text("a line\n" * 9)
    code = run(["train", f"{tmp_path}/a.txt", "--out", f"{tmp_path}/new", *words])
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_defence_of_another_package_has_options(tmp_path, monkeypatch):
    (tmp_path / "their_options.py").write_text(textwrap.dedent(THEIRS))
    monkeypatch.syspath_prepend(tmp_path)
    point = metadata.EntryPoint("halved", "their_options", "vestige.defences")
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [point] if "defences" in group else []
    )
    fresh = Registry("defence", package="vestige.defences.methods", group="vestige.defences")
    for name in DEFENCES.names():
        fresh.add(name, DEFENCES[name])
    monkeypatch.setattr("vestige.defences.registry.DEFENCES", fresh)
    try:
        options = defence_options.options_class()
        found = as_defence(options(defence="halved", share=0.25, steps=3))
        assert (found.name, found.share, found.steps) == ("halved", 0.25, 3)
        with pytest.raises(ValueError, match="`defence` halved needs `steps`"):
            as_defence(options(defence="halved"))
        parameter = options.__dataclass_fields__["share"].type.__metadata__[-1]
        assert parameter.help == "halved: Share of the gradient that is kept. [0.5]"
    finally:
        sys.modules.pop("their_options", None)
