"""Registries find what modules of a package and of entry points add to them."""

import pytest

from vestige.registry import Registry


def test_a_name_is_registered_once():
    kinds = Registry[object]("kind")
    first = kinds.add("one", object())
    assert kinds.add("one", first) is first
    with pytest.raises(ValueError, match="kind 'one' is registered twice"):
        kinds.add("one", object())


def test_modules_of_a_package_and_of_entry_points_are_found(tmp_path, monkeypatch):
    """A package with two modules, and another package that adds a third name by its metadata."""
    metadata = "guest-1.0.dist-info"
    files = {
        "home/__init__.py": "from vestige.registry import Registry\n"
        "KINDS = Registry('kind', package='home', group='home.kinds')\n",
        "home/one.py": "import home\nhome.KINDS.add('one', 'one!')\n",
        "home/two.py": "import home\nhome.KINDS.add('two', 'two!')\n",
        "guest.py": "import home\nhome.KINDS.add('three', 'three!')\n",
        f"{metadata}/METADATA": "Name: guest\nVersion: 1.0\n",
        f"{metadata}/entry_points.txt": "[home.kinds]\nthree = guest\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    import home

    assert home.KINDS.names() == ("one", "three", "two")
    assert home.KINDS["three"] == "three!"
    assert home.KINDS.values() == ("one!", "three!", "two!")
