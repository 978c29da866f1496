"""Imports point in one direction: a layer may import only layers that are listed before it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import vestige

LAYERS = [
    "errors", "monitor", "memory", "_validate", "registry", "arguments", "data", "store",
    "new_files", "parallel", "models", "metrics", "claims", "results", "training",
    "privacy", "defences", "session", "reports", "preparation", "audits", "demo",
    "integrations", "cli", "__main__",
]  # fmt: skip
SIBLINGS = [{"models", "metrics"}]
LAZY = {"results": {"reports"}, "arguments": {"data", "models"}}
"""Exceptions: imports inside a method or for types alone."""
AUDITS_OF_AUDITS = {"comparison": {"exposure", "extraction"}}
"""Audits that measure with other audits."""
SEEN_BY_REPORTS = {
    "__version__", "new_files", "errors", "memory", "_validate", "registry", "metrics", "claims",
    "results", "reports",
}  # fmt: skip
FORBIDDEN = {"utils", "common", "helpers", "base", "manager", "engine"}
UNIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
UNIX_NAMES = {
    "os.fork", "os.getuid", "os.uname", "os.killpg", "os.sched_getaffinity", "signal.SIGKILL",
    "signal.SIGALRM",
}  # fmt: skip
ROOT = Path(vestige.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All syntax nodes of a file."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(node: ast.AST) -> Iterator[str]:
    """Modules and names that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module, "a relative import"
        assert node.level == 0, "a relative import"
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(path: Path) -> set[str]:
    """All that a file imports, also inside functions."""
    return {name for node in nodes_of(path) for name in imported(node)}


def layers(path: Path) -> set[str]:
    """The layers that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("vestige.")}


@pytest.mark.slow
def test_imports_point_downwards():
    for path in FILES:
        layer = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if layer == "__init__":
            continue
        for other in layers(path) - {layer, "__version__"} - LAZY.get(layer, set()):
            assert LAYERS.index(other) < LAYERS.index(layer), f"{path} imports upwards: {other}"
            assert {layer, other} not in SIBLINGS, f"{path} imports a sibling: {other}"


def test_an_audit_imports_no_other_audit():
    """Except those that run others. `release` reports on runs of all of them, and calls none."""
    for path in (ROOT / "audits").rglob("*.py"):
        audit = path.relative_to(ROOT / "audits").parts[0]
        for name in imports(path):
            if name.startswith("vestige.audits."):
                allowed = {audit} | AUDITS_OF_AUDITS.get(audit, set())
                assert name.split(".")[2] in allowed, f"{path} imports {name}"


def test_reports_import_no_model():
    for path in (ROOT / "reports").rglob("*.py"):
        assert layers(path) <= SEEN_BY_REPORTS, path


def test_the_command_line_imports_no_computation():
    for path in (ROOT / "cli").rglob("*.py"):
        assert "metrics" not in layers(path), path
        assert not {name.split(".")[0] for name in imports(path)} & {"numpy", "torch"}, path


@pytest.mark.slow
def test_the_package_does_not_import_the_reproduction():
    for path in FILES:
        assert "reproduction" not in {name.split(".")[0] for name in imports(path)}, path


def test_modules_are_small_and_well_named():
    for path in FILES:
        assert path.stem not in FORBIDDEN, path
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= 400, f"{path} has {lines} lines"


def test_nothing_unix_only_is_used():
    for path in FILES:
        assert not UNIX_ONLY & imports(path), path
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert f"{node.value.id}.{node.attr}" not in UNIX_NAMES, path


def top_level_imports(path: Path) -> set[str]:
    """What a file imports when it is imported itself."""
    names: set[str] = set()
    nodes: list[ast.stmt] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif isinstance(node, ast.If | ast.Try | ast.With):
            nodes += node.body
        else:
            names |= set(imported(node))
    return names


def test_there_are_no_import_cycles():
    paths = {
        ".".join(["vestige", *path.relative_to(ROOT).with_suffix("").parts]): path for path in FILES
    }
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    # An import from a module's own package is of another module of that package.
    remaining = {
        name: {
            other
            for other in top_level_imports(path) & set(paths)
            if other != name and not name.startswith(f"{other}.")
        }
        for name, path in paths.items()
    }
    while free := {name for name, needed in remaining.items() if not needed}:
        remaining = {name: needed - free for name, needed in remaining.items() if name not in free}
    assert not remaining, f"these import each other in a circle: {sorted(remaining)}"


def test_only_claims_make_verdicts():
    """The verdicts of `vestige.claims` are written nowhere else, except by the release gate."""
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == "claims" or "release" in path.parts:
            continue
        constants = {node.value for node in nodes_of(path) if isinstance(node, ast.Constant)}
        verdicts = {word for word in constants if word in ("no leak shown", "undecided")}
        assert not verdicts, f"{path} holds {verdicts}: import them from vestige.claims"
