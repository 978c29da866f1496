import subprocess
import sys

import pytest

from vestige.registry import Registry


def test_a_name_is_registered_once():
    kinds = Registry[object]("kind")
    first = kinds.add("one", object())
    assert kinds.add("one", first) is first
    with pytest.raises(ValueError, match="kind 'one' is registered twice"):
        kinds.add("one", object())


def test_modules_of_a_package_and_of_entry_points_are_found(tmp_path, monkeypatch):
    """A package with two modules, and another one that adds a third thing through its metadata."""
    home, guest = tmp_path / "home", tmp_path / "guest-1.0.dist-info"
    for folder in (home, guest):
        folder.mkdir()
    (home / "__init__.py").write_text(
        "from vestige.registry import Registry\n"
        "KINDS = Registry('kind', package='home', group='home.kinds')\n"
    )
    for name in ("one", "two"):
        (home / f"{name}.py").write_text(f"import home\nhome.KINDS.add('{name}', '{name}!')\n")
    (tmp_path / "guest.py").write_text("import home\nhome.KINDS.add('three', 'three!')\n")
    (guest / "METADATA").write_text("Name: guest\nVersion: 1.0\n")
    (guest / "entry_points.txt").write_text("[home.kinds]\nthree = guest\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    import home as package

    assert package.KINDS.names() == ("one", "three", "two")
    assert package.KINDS["three"] == "three!"
    assert package.KINDS.values() == ("one!", "three!", "two!")


def test_token_scores_are_named_without_torch():
    code = (
        "import sys; from vestige.audits.update.scores import NAMES; "
        "assert NAMES == ('differential', 'relative', 'smoothed'); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
