"""A verb that is still a function of typer, until its workflow is one of ours."""

from collections.abc import Callable, Sequence
from functools import cached_property
from inspect import cleandoc
from typing import Any, get_args, get_origin

import typer

from vestige.cli.bounds import Bounded
from vestige.cli.error_lines import in_one_line
from vestige.cli.provenance import COMMAND
from vestige.workflows.parameters import REQUIRED, Option


class _Command(Bounded):
    """Quotes no word of a phrase which was given without quotation marks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        ctx.meta[COMMAND] = ["vestige", self.name, *args]
        rest = super().parse_args(ctx, args)
        if rest:
            ctx.fail(
                f"Got {len(rest)} unexpected extra argument(s). "
                "Text of several words needs quotation marks."
            )
        return rest


class Legacy:
    """A typer command with the attributes of a `Verb`."""

    def __init__(self, name: str, function: Callable[..., None]) -> None:
        self.name = name
        self._function = function

    @cached_property
    def command(self) -> Any:
        """As typer makes it."""
        verb = typer.Typer(
            add_completion=False,
            rich_markup_mode="markdown",
            context_settings={"help_option_names": ["--help", "-h"]},
        )
        verb.command(self.name, cls=_Command)(self._function)
        return typer.main.get_command(verb)

    @property
    def text(self) -> str:
        """The help above the options."""
        return cleandoc(self._function.__doc__ or "")

    @property
    def summary(self) -> str:
        """One line."""
        return " ".join(self.text.partition("\n\n")[0].split())

    @property
    def options(self) -> tuple[Option, ...]:
        """What `Verb.options` has."""
        return tuple(_option(each) for each in self.command.params)

    @property
    def usage(self) -> str:
        """The verb and its arguments."""
        places = [option.shown for option in self.options if not option.flags]
        return " ".join(["vestige", self.name, *places, "[OPTIONS]"])

    def __call__(self, words: Sequence[str]) -> int:
        """Do what a command line asks; the exit code."""
        try:
            return int(
                self.command.main(
                    list(words), prog_name=f"vestige {self.name}", standalone_mode=False
                )
                or 0
            )
        except typer.TyperException as error:  # of usage: typer shows it, with what was given
            error.message = in_one_line(error.message)
            error.show()  # type: ignore[attr-defined]
            return 2

    def in_flags(self, message: str) -> str:
        """The message, which names options already."""
        return message


def _option(each: Any) -> Option:
    type_ = each.type_descriptor.annotation
    rest = [one for one in get_args(type_) if one is not type(None)]
    type_ = rest[0] if type(None) in get_args(type_) else type_
    many = get_origin(type_) is list
    return Option(
        name=each.name,
        path=(each.name,),
        type=get_args(type_)[0] if many else type_,
        many=many,
        default=REQUIRED if each.required else each.default,
        help=each.help or "",
        flags=tuple(each.opts) if each.param_type_name == "option" else (),
        metavar=each.metavar or (None if each.param_type_name == "option" else each.name.upper()),
    )
