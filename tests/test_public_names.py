"""What `import vestige` offers: one sorted list, all there, none of it paid for in advance."""

import subprocess
import sys

import pytest

import vestige


def test_the_list_is_sorted_and_without_repeats():
    assert vestige.__all__ == sorted(set(vestige.__all__))


def test_the_list_names_what_the_package_can_find():
    assert sorted(name for names in vestige._HOMES.values() for name in names) == vestige.__all__


@pytest.mark.parametrize("name", vestige.__all__)
def test_every_name_is_there(name):
    assert getattr(vestige, name) is not None
    assert name in dir(vestige)


def test_a_name_that_is_not_there_says_so():
    with pytest.raises(AttributeError, match="no attribute 'leak'"):
        _ = vestige.leak


def test_importing_the_package_imports_no_heavy_library():
    heavy = "{'torch', 'transformers', 'numpy', 'pyarrow', 'datasets', 'peft'}"
    code = f"import sys, vestige; print(sorted(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
