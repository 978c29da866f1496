"""The options of defences: read off the registered classes, those of other packages included."""

import sys
import textwrap
from dataclasses import fields
from importlib import metadata

import pytest

from vestige.cli.app import run
from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Goldfish
from vestige.defences.registry import DEFENCES, NoDefence
from vestige.preparation import defence_options
from vestige.preparation.defence_options import DefenceOptions, as_defence, as_options
from vestige.registry import Registry

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
