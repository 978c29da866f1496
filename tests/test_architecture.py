"""Imports point in one direction: a layer may import only layers that are listed before it."""

import ast
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
"""Imported by a method or for types alone: a result draws itself, an option may be an object."""
ROOT = Path(vestige.__file__).parent
FORBIDDEN = {"utils", "common", "helpers", "base", "manager", "engine"}


FILES = sorted(ROOT.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """A file of the package."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of it."""
    return tuple(ast.walk(parsed(path)))


def imports(path: Path) -> set[str]:
    """Top-level parts of our package imported anywhere in a file."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if "vestige." in alias.name}
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        assert node.level == 0, f"{path} imports relatively"
        package, *rest = node.module.split(".")
        if package == "vestige":
            found |= {rest[0]} if rest else {alias.name for alias in node.names}
    return found


@pytest.mark.slow
def test_imports_point_downwards():
    for path in FILES:
        layer = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if layer == "__init__":
            continue
        for other in imports(path) - {layer, "__version__"} - LAZY.get(layer, set()):
            assert LAYERS.index(other) < LAYERS.index(layer), f"{path} imports upwards: {other}"
            assert {layer, other} not in SIBLINGS, f"{path} imports a sibling: {other}"


RUN_BY = {"comparison": {"exposure", "extraction"}}
"""Audits that measure with other audits."""


def test_an_audit_imports_no_other_audit():
    """Except those that run others. `release` reports on runs of all of them, and calls none."""
    for path in (ROOT / "audits").rglob("*.py"):
        own = path.relative_to(ROOT / "audits").parts[0]
        for module in module_imports(path) | lazy_imports(path):
            if module.startswith("vestige.audits."):
                allowed = {own} | RUN_BY.get(own, set())
                assert module.split(".")[2] in allowed, f"{path} imports {module}"


def lazy_imports(path: Path) -> set[str]:
    """Modules of ours that are imported anywhere in a file."""
    froms = [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom)]
    return {node.module for node in froms if (node.module or "").startswith("vestige")}


def test_reports_never_see_a_model():
    seen = {
        "__version__", "new_files", "errors", "memory", "_validate", "registry", "metrics",
        "claims", "results", "reports",
    }  # fmt: skip
    for path in (ROOT / "reports").rglob("*.py"):
        assert imports(path) <= seen, path


def test_modules_are_small_and_well_named():
    for path in FILES:
        assert path.stem not in FORBIDDEN, path
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= 400, f"{path} has {lines} lines"


UNIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
UNIX_NAMES = {
    "os.fork", "os.getuid", "os.uname", "os.killpg", "os.sched_getaffinity", "signal.SIGKILL",
    "signal.SIGALRM",
}  # fmt: skip


def test_no_unix_only_module_is_imported():
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                assert not UNIX_ONLY & {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module not in UNIX_ONLY, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert f"{node.value.id}.{node.attr}" not in UNIX_NAMES, path


def test_the_command_line_imports_no_computation():
    for path in (ROOT / "cli").rglob("*.py"):
        modules = {node.module for node in nodes_of(path) if isinstance(node, ast.ImportFrom)}
        modules |= {
            alias.name
            for node in nodes_of(path)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        roots = {".".join((name or "").split(".")[:2]) for name in modules}
        assert not roots & {"numpy", "torch", "vestige.metrics"}, path


def module_imports(path: Path) -> set[str]:
    """Modules of ours that a file imports when it is imported itself."""
    found = set()
    nodes: list[ast.stmt] = list(parsed(path).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vestige"):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.If | ast.Try | ast.With):
            nodes += node.body
    return found


def test_there_are_no_import_cycles():
    names = {
        ".".join(["vestige", *path.relative_to(ROOT).with_suffix("").parts]): path for path in FILES
    }
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    # What a module takes from its own package stands in another module of it.
    rest = {
        name: {
            other
            for other in module_imports(path) & set(names)
            if other != name and not name.startswith(f"{other}.")
        }
        for name, path in names.items()
    }
    while free := {name for name, needed in rest.items() if not needed}:
        rest = {name: needed - free for name, needed in rest.items() if name not in free}
    assert not rest, f"these import each other in a circle: {sorted(rest)}"


def test_only_claims_make_verdicts():
    """`vestige.claims` computes verdicts; a gate has states of its own, one of the same name."""
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == "claims" or "release" in path.parts:
            continue
        words = {node.value for node in nodes_of(path) if isinstance(node, ast.Constant)}
        named = {word for word in words if word in ("no leak shown", "undecided")}
        assert not named, f"{path} holds {named}: import them from vestige.claims"


@pytest.mark.slow
def test_the_package_does_not_import_the_reproduction():
    for path in FILES:
        for node in nodes_of(path):
            names = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "asname")]
            names.append(getattr(node, "module", None) or "")
            assert not any(name.split(".")[0] == "reproduction" for name in names), path
