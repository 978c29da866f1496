"""Files that `report` writes: a page or card, and files for pipelines and baselines."""

from collections.abc import Mapping
from dataclasses import replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige import new_files

if TYPE_CHECKING:
    from vestige.audits.release.release import Release


def is_card(out: Any) -> bool:
    """Whether the output is a model card."""
    return Path(fspath(out)).suffix == ".md"


def with_page(result: "Release", out: Path, *, show_secrets: bool) -> "Release":
    """The result, with its page or card written."""
    from vestige.audits.release.changes import blocks_of
    from vestige.reports.page import write_card, write_page

    first = () if result.changes is None else blocks_of(result.changes)
    above = result.report() if result.has_conditions else None
    if is_card(out):
        page = write_card(result.runs, out, first=first)
    else:
        page = write_page(result.runs, out, show_secrets=show_secrets, first=first, above=above)
    summary = {**result.summary, "page": str(page), "show_secrets": show_secrets}
    return replace(result, summary=summary, page=page)


def write_files(result: "Release", outputs: Mapping[str, Any], *, allow_undecided: bool) -> None:
    """Write the files for pipelines that were asked for."""
    from vestige.audits.release import baseline, files
    from vestige.audits.release.checks import key_of
    from vestige.data.atomic_write import write_text

    if outputs["write_baseline"] is not None:
        accepted = {
            key_of(check.run, check.quantity): check.accepted
            for check in result.checks
            if check.accepted is not None
        }
        baseline.write_baseline(Path(fspath(outputs["write_baseline"])), accepted)
    if outputs["junit"] is not None:
        text = files.junit(result.checks, allow_undecided=allow_undecided)
        write_text(Path(fspath(outputs["junit"])), text, shared=True)
    if outputs["markdown"] is not None:
        verdict = result.report().verdict
        assert verdict is not None
        text = files.markdown(verdict.line, result.checks)
        write_text(Path(fspath(outputs["markdown"])), text, shared=True)


def require_apart(outputs: Mapping[str, Any], baseline: Any) -> None:
    """Raise an error where an output would replace another, the baseline, or a file of a run.

    Raises:
        ValueError: two are one file.
        RunError: one lies in a run folder, or the page exists.
    """
    seen: dict[Path, str] = {}
    if baseline is not None and outputs["write_baseline"] is None:
        seen[Path(fspath(baseline)).resolve()] = "baseline"
    for name, given in outputs.items():
        if given is None:
            continue
        path = new_files.require_outside_runs(fspath(given))
        if name == "out":
            new_files.require_new(path)
        if path.resolve() in seen:
            raise ValueError(f"`{name}` and `{seen[path.resolve()]}` must be different files")
        seen[path.resolve()] = name
