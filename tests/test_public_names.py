"""What `import vestige` offers: few names, typed, documented, each with an example, none paid for
in advance.
"""

import ast
import doctest
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import vestige
from tests.docs.documents import blocks, documents

ROOT = Path(vestige.__file__).parent
REPOSITORY = Path(__file__).parents[1]
PROGRAM = "tests/typed_program.py"


def identifiers(source: str) -> set[str]:
    """Names and attributes that a piece of Python uses."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.fixture(scope="module")
def shown() -> set[str]:
    """Every identifier that a doctest of the package or a session of the documents uses."""
    texts = [b.text for path in documents() for b in blocks(path) if b.language == "pycon"]
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                texts.append(ast.get_docstring(node) or "")
    examples = [e for text in texts for e in doctest.DocTestParser().get_examples(text)]
    return {name for example in examples for name in identifiers(example.source)}


def test_public_names_are_few_sorted_and_unique():
    assert vestige.__all__ == sorted(set(vestige.__all__))
    assert len(vestige.__all__) <= 80


@pytest.mark.parametrize("name", vestige.__all__)
def test_a_public_name_exists_and_has_a_docstring(name):
    value = getattr(vestige, name)
    assert name in dir(vestige)
    doc = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert doc
    assert not doc.startswith(f"{name}("), "a dataclass wrote this docstring, and nobody else"


@pytest.mark.parametrize("name", vestige.__all__)
def test_a_public_name_has_an_example(name, shown):
    assert name in shown, f"no doctest uses `{name}`"


def test_the_typed_program_uses_every_name_and_mypy_reads_it():
    used = identifiers((REPOSITORY / PROGRAM).read_text(encoding="utf-8"))
    assert set(vestige.__all__) <= used, set(vestige.__all__) - used
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert PROGRAM in settings["tool"]["mypy"]["files"]


def test_the_package_contains_the_stub():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"py.typed", "__init__.pyi"} <= set(
        settings["tool"]["setuptools"]["package-data"]["vestige"]
    )


def test_a_missing_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="vestige attribute leak"):
        _ = vestige.leak


def test_importing_the_package_imports_no_heavy_library():
    heavy = "{'torch', 'transformers', 'numpy', 'pyarrow', 'datasets', 'peft'}"
    code = f"import sys, vestige; print(sorted(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
