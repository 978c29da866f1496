"""Every benchmark runs in its quick mode, with small models and few repetitions."""

import importlib
import json
from importlib.util import find_spec
from pathlib import Path

import harness
import pytest

FOLDER = Path(harness.__file__).parent
BENCHMARKS = sorted(
    path.stem for path in FOLDER.glob("*.py") if '\nif __name__ == "__main__":' in path.read_text()
)
SECONDS = {
    "error_rates_canaries": ["completion", "exposure"],
    "error_rates_texts": ["passages", "membership"],
    "interval_coverage": ["compare"],
    "measured_epsilon": ["kinds", "simulated"],
    "null_calibration": ["simulated"],
    "reading_cost": ["ranks", "statistics"],
    "search_cost": ["words", "subwords"],
    "training_steps": ["lstm", "regularizers", "callback"],
}
"""Parts that take seconds."""


def run(name, parts, capsys):
    """The results of a benchmark, whose output ends with them."""
    module = importlib.import_module(name)
    options = getattr(module, "options", None)
    results = harness.main(name, module.__doc__, module.PARTS, options, [*parts, "--quick"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1]).keys() == results.keys()
    assert all(results.values())
    return results


@pytest.fixture(autouse=True)
def empty_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VESTIGE_DATA", raising=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SECONDS)
def test_parts_that_take_seconds(name, capsys):
    assert set(SECONDS[name]) <= run(name, SECONDS[name], capsys).keys()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "kills"])
def test_a_benchmark_runs_without_corpora(name, capsys):
    if name.startswith("memaudit") and find_spec("memaudit") is None:
        pytest.skip("memaudit is not installed")
    run(name, [], capsys)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("memaudit") is None, reason="memaudit is not installed")
def test_memaudit_and_vestige_refuse_the_same_mistakes(capsys):
    rows = run("memaudit_comparison", ["mistakes"], capsys)["mistakes"]
    for tool in ("memaudit", "vestige"):
        refused = [row["refused"] for row in rows if row["tool"] == tool]
        assert refused == [False, True, True, True, False]  # the last one packs rows into blocks


def test_without_corpora_a_benchmark_names_the_variable():
    module = importlib.import_module("unlearning")
    with pytest.raises(SystemExit, match="VESTIGE_DATA"):
        harness.main("unlearning", "", module.PARTS, module.options, ["exact", "--times", "1"])


@pytest.mark.skipif(find_spec("memaudit") is not None, reason="memaudit is installed")
def test_without_memaudit_the_comparison_names_the_package(capsys):
    module = importlib.import_module("memaudit_comparison")
    with pytest.raises(SystemExit, match="2"):
        harness.main("memaudit_comparison", "", module.PARTS, module.options, ["--quick"])
    assert "pip install --no-deps memaudit==0.2.0" in capsys.readouterr().err


def test_documents_name_benchmarks_and_parts_that_exist():
    root, commands = FOLDER.parent, []
    for path in [*root.glob("*.md"), *root.glob("docs/**/*.md")]:
        for line in path.read_text("utf-8").splitlines():
            if "python benchmarks/" in line:
                words = line.split("python benchmarks/")[1].split("`")[0].split()
                commands.append((path.name, *words))
    assert commands
    for document, script, *words in commands:
        assert (FOLDER / script).is_file(), f"{document}: benchmarks/{script}"
        module = importlib.import_module(script.removesuffix(".py"))
        for word in words:
            if word.startswith(("-", "#", "(")) or not word.islower():
                break
            assert word.strip("[].,;:") in module.PARTS, f"{document}: {script} {word}"
