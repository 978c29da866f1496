"""A verb: a workflow whose parameters are options, with what the command line adds to it.

It parses, calls, saves and prints. What the workflow's signature and docstring say is not said
again here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.cli.help import HELP_FLAGS, added, show_help
from vestige.workflows.arguments import COMMAND, keywords, verb_of
from vestige.workflows.docstrings import docstring
from vestige.workflows.parameters import REQUIRED, Option, options_of

if TYPE_CHECKING:
    from vestige.claims import Claim

OUTPUT = "Output"
OUT = added(
    "out", "A directory to make; it must not exist.",
    type=Path, default=REQUIRED, metavar="DIR", group=OUTPUT,
)  # fmt: skip
JSON = added("json", "Print the summary as JSON on stdout.", group=OUTPUT)
SHOW_SECRETS = added(
    "show_secrets", "Show phrases in the clear; otherwise each word is a block.", group=OUTPUT
)
CONFIG = added(
    "config",
    "Take options from a YAML, TOML or JSON file, or from a run directory, which repeats "
    "the run. Options that are given here win.",
    type=Path, default=None, metavar="FILE",
)  # fmt: skip


@dataclass(frozen=True)
class Output:
    """Where a result goes.

    Attributes:
        out: its run directory, or where the workflow has written; the working directory where
            nothing is written.
        show_secrets: show texts in the clear.
        more: values of the options that this verb alone adds, by name.
    """

    out: Path
    json: bool
    show_secrets: bool
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verb:
    """A workflow on the command line.

    Attributes:
        workflow: the function.
        show: prints its result for a reader.
        outputs: the options that the command line adds. Where the workflow has a parameter `out`
            it writes by itself, and what it returns is not saved.
        save: writes the result into its directory, where a run directory alone will not do, or
            what is to stand beside what the workflow has written.
        summary_of: what `--json` prints, the result's summary unless given.
        required: parameters that have a default in Python only.
        unless: the option with which they may be left out.
        code_of: the exit code of a result; by its verdict unless given.
    """

    workflow: Callable[..., Any]
    show: Callable[[Any, Output], None]
    outputs: tuple[Option, ...] = (OUT, JSON, SHOW_SECRETS)
    save: Callable[[Any, Path], None] | None = None
    summary_of: Callable[[Any, Output], Mapping[str, object]] | None = None
    required: tuple[str, ...] = ()
    unless: str = ""
    code_of: Callable[[Any], int] | None = None

    @cached_property
    def name(self) -> str:
        """As it is typed."""
        return verb_of(self.workflow)

    @cached_property
    def saves(self) -> bool:
        """Whether the result is written here, and not by the workflow."""
        return any(option.name == OUT.name for option in self.outputs)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """All options, with help that names them as the command line does."""
        own = options_of(self.workflow)
        told = [replace(each, help=self._named(each.help, but=each.choices)) for each in own]
        told = [
            replace(one, default=REQUIRED) if one.name in self.required else one for one in told
        ]
        return (*told, CONFIG, *self.outputs)

    @property
    def summary(self) -> str:
        """One line."""
        return self._named(docstring(self.workflow).summary)

    @property
    def usage(self) -> str:
        """The verb and its arguments."""
        places = [
            option.shown.rstrip(".") + "..." * option.many
            for option in self.options
            if not option.flags
        ]
        return " ".join(["vestige", self.name, *places, "[OPTIONS]"])

    @property
    def text(self) -> str:
        """The paragraphs above the options."""
        return self._named(docstring(self.workflow).text)

    @property
    def examples(self) -> tuple[str, ...]:
        """Command lines."""
        return docstring(self.workflow).examples

    def __call__(self, words: Sequence[str]) -> int:
        """Do what a command line asks.

        Args:
            words: after the verb's name.

        Returns:
            The exit code.
        """
        if any(word in HELP_FLAGS for word in words):
            show_help(self.options, usage=self.usage, text=self.text, examples=self.examples)
            return 0
        values = self._values(words)
        saved = self.saves and values.get(OUT.name) is not None
        output = self._output(values)
        if saved:
            from vestige.results import require_new

            require_new(output.out)
        command = COMMAND.set(("vestige", self.name, *words))
        try:
            found = self._call(values)
        finally:
            COMMAND.reset(command)
        if saved or self.save:
            self._save(found, output.out)
        claim = _claim_of(found)
        code = _code_of(claim) if self.code_of is None else self.code_of(found)
        if output.json:
            from vestige.cli.terminal import show_json

            summary = self.summary_of(found, output) if self.summary_of else found.summary()
            show_json(summary, show_secrets=output.show_secrets)
            return code
        _show_verdict(claim)
        self.show(found, output)
        if saved and self.save is None:
            from vestige.cli.terminal import say

            out = output.out
            say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")
        return code

    def in_flags(self, message: str) -> str:
        """A message of the library, with parameters in backticks as the options they are."""
        return self._named(message, quote="")

    def _save(self, found: Any, out: Path) -> None:
        from vestige import results

        if self.save is None:
            results.save(found, out, run=found.record)
        else:
            self.save(found, out)

    def _values(self, words: Sequence[str]) -> dict[str, Any]:
        from vestige.cli.parsing import parse, require

        values = parse(self.options, words)
        if config := values.pop(CONFIG.name, None):
            from vestige.cli.configuration import configured

            known = [option for option in self.options if option is not CONFIG]
            values |= configured(config, self.name, known, values)
        free = self.required if values.get(self.unless) else ()
        require([option for option in self.options if option.name not in free], values)
        return values

    def _output(self, values: dict[str, Any]) -> Output:
        added = {each.name: values.pop(each.name, each.default) for each in self.outputs}
        return Output(
            out=added.get("out") or values.get("out") or self._default("out") or Path(),
            json=added.get("json", False),
            show_secrets=added.get("show_secrets", values.get("show_secrets", False)),
            more=added,
        )

    def _default(self, name: str) -> Any:
        found = next((each.default for each in self.options if each.name == name), None)
        return None if found is REQUIRED else found

    def _call(self, values: dict[str, Any]) -> Any:
        from vestige.cli.terminal import Terminal

        watched = "monitor" in signature(self.workflow).parameters
        monitor = {"monitor": Terminal()} if watched else {}
        return self.workflow(**keywords(self.workflow, values), **monitor)

    @cached_property
    def _flags(self) -> dict[str, str]:
        return {one.parameter: one.shown.rstrip(".") for one in options_of(self.workflow)}

    def _named(self, text: str, *, but: Sequence[str] = (), quote: str = "`") -> str:
        """Text in which a parameter in backticks is its option; other words in them stay."""

        def flag(found: re.Match[str]) -> str:
            name = found[1]
            known = name in self._flags and name not in but
            return f"{quote}{self._flags[name]}{quote}" if known else found[0]

        return re.sub(r"`(\w+)`", flag, text)


def _claim_of(found: Any) -> "Claim | None":
    """The claim of a result; None of one without a verdict."""
    from vestige.claims import Claim  # pulls in SciPy, which help can do without

    summary = found.summary() if hasattr(found, "summary") else {}
    return Claim.from_summary(summary) if "claim" in summary else None


def _code_of(claim: "Claim | None") -> int:
    """The exit code of a verdict: 0 where there is none."""
    from vestige.claims import LEAK, NO_LEAK, UNDECIDED

    return 0 if claim is None else {NO_LEAK: 0, LEAK: 1, UNDECIDED: 3}[claim.verdict]


def _show_verdict(claim: "Claim | None") -> None:
    """Print the verdict, the checks that failed, and those that passed."""
    if claim is None:
        return
    from vestige.reports.verdicts import verdict_of

    verdict = verdict_of(claim)
    print("\n".join(filter(None, (verdict.line, *verdict.against, verdict.all_passed))))
