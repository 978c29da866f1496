"""Options of `train` and of its defences: which tasks have them, and what they give."""

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
from vestige.preparation.options import ModelOptions, TrainingOptions, reject_others
from vestige.preparation.train import ONLY, train
from vestige.registry import Registry
from vestige.session import Session
from vestige.training.config import TrainingConfig


def test_every_setting_is_one_of_the_configuration():
    assert set(TrainingOptions().given) <= {field.name for field in fields(TrainingConfig)}
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


# Options of one task

TASKS = {("text", "pairs"): ("width",), ("nlu",): ("column",)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape."""

    width: int | None = None
    depth: int = 2


DEFAULTS = {"task": "text", "shape": Shape(), "column": "tokens", "seed": 0}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"task": "text", "shape": Shape(width=4), "seed": 3}, None),
        ({"task": "pairs", "shape": Shape(width=4, depth=1)}, None),
        ({"task": "nlu", "shape": Shape(depth=9), "column": "words"}, None),
        ({"task": "text", "shape": Shape(), "column": "tokens"}, None),
        ({"task": "text", "column": "words"}, "`column` needs `task` nlu"),
        ({"task": "nlu", "shape": Shape(width=4)}, "`width` needs `task` text or pairs"),
    ],
)
def test_an_option_of_another_task_is_refused_unless_it_has_its_default(arguments, says):
    session = Session("learn", {**DEFAULTS, **arguments}, defaults=DEFAULTS)
    if says is None:
        reject_others(session, arguments["task"], TASKS)
        return
    with pytest.raises(ValueError, match=f"^{says}$"):
        reject_others(session, arguments["task"], TASKS)


def test_the_options_of_one_task_exist():
    known = {name.rstrip("_") for name in flags_of(train)}
    assert {name for names in ONLY.values() for name in names} <= known


# Defences

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
    for defence in (DPSGD(epsilon=8.0, physical_batch_size=2), Goldfish(k=3), Goldfish()):
        assert as_defence(as_options(defence)) == defence


def test_every_setting_is_an_option_of_all_its_defences():
    names = {one.name for one in fields(DefenceOptions)}
    assert {"epsilon", "weight", "pairing", "k", "unit", "local_epochs"} <= names
    assert "context" not in names


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
    monkeypatch.delitem(sys.modules, "their_options", raising=False)
    options = defence_options.options_class()
    found = as_defence(options(defence="halved", share=0.25, steps=3))
    assert (found.name, found.share, found.steps) == ("halved", 0.25, 3)
    with pytest.raises(ValueError, match="`defence` halved needs `steps`"):
        as_defence(options(defence="halved"))
    parameter = options.__dataclass_fields__["share"].type.__metadata__[-1]
    assert parameter.help == "halved: Share of the gradient that is kept. [0.5]"
