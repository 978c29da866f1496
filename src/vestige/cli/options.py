"""Options of a verb: the signature of the verb as a cyclopts application."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from cyclopts import App, Parameter

from vestige.arguments import RUN

FOLDERS = {"check": Path("check")}
"""Default run folders; commands without one require --out."""

_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_ADDED = {
    "show_secrets": Annotated[bool, RUN, Parameter(help="Show texts unredacted.")],
    "json": Annotated[bool, RUN, Parameter(help="Print the summary as JSON.")],
    "config": Annotated[
        Path | None,
        RUN,
        Parameter(help="Options from YAML, TOML, JSON, or a run folder, which it repeats."),
    ],
}
"""Options that the command line adds to every verb."""


def verb_app(command: str, function: Callable[..., Any]) -> App:
    """A cyclopts application that parses the options of a verb."""

    def nothing(**_: Any) -> None:
        pass

    signature = _command_line(function)
    nothing.__signature__ = signature  # type: ignore[attr-defined]
    nothing.__annotations__ = {
        parameter.name: parameter.annotation for parameter in signature.parameters.values()
    }
    nothing.__doc__ = inspect.getdoc(function)
    app = App(
        name=command,
        help_flags=(),
        version_flags=(),
        default_parameter=Parameter(
            negative=(),
            allow_repeating=True,
            allow_leading_hyphen=True,
            json_list=False,
            json_dict=False,
        ),
    )
    app.default(nothing)
    return app


def _command_line(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a verb on the command line: --out is required, and options are added."""
    public = inspect.signature(function).parameters
    declared = inspect.signature(inspect.unwrap(function)).parameters
    parameters = []
    for name, parameter in public.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:  # a word with a dash is a misspelt option
            hint = Annotated[parameter.annotation, Parameter(allow_leading_hyphen=False)]  # type: ignore[name-defined]
            parameters.append(parameter.replace(annotation=hint))
        elif name == "out" and "out" not in declared:
            if (folder := FOLDERS.get(function.__name__)) is not None:
                help_text = Parameter(help="Run folder. Rerun to resume.")
                parameter = parameter.replace(annotation=Annotated[parameter.annotation, help_text])
            parameters.append(parameter.replace(default=folder or parameter.empty))
        elif name != "monitor":
            parameters.append(parameter)
    for name, hint in _ADDED.items():
        if name not in public:
            default = False if name != "config" else None
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=hint))
    return inspect.Signature(parameters)


def arguments_of(app: App, *, described: bool = False) -> list[Any]:
    """The arguments and options of a verb, with the fields of options dataclasses."""
    arguments = app.assemble_argument_collection(parse_docstring=described)
    return [argument for argument in arguments if argument.names[:1] != ("*",)]


def flags_of(function: Callable[..., Any]) -> dict[str, str]:
    """Names on the command line by parameter."""
    return {
        argument.field_info.name: display_name(argument)
        for argument in arguments_of(verb_app("", function))
    }


def display_name(argument: Any) -> str:
    """Name of an argument in messages."""
    field = argument.field_info
    return str(field.name).upper() if field.is_positional else str(argument.name)


def number_type(argument: Any) -> Any:
    """int, float or bool if the argument has that type, else None."""
    types = [
        hint for hint in (argument.hint, *get_args(argument.hint)) if hint in (bool, int, float)
    ]
    return types[0] if types else None


def is_list(argument: Any) -> bool:
    """Whether an option may be repeated."""
    origins = {get_origin(hint) for hint in (argument.hint, *get_args(argument.hint))}
    return bool(origins & {list, tuple, Sequence})


def bounds(argument: Any) -> str:
    """The bounds of a number in words."""
    limits = _limits(argument.field_info.annotation)
    return " and ".join(
        f"{word} {limits[name]:,}" for name, word in _BOUNDS.items() if name in limits
    )


def _limits(hint: Any) -> dict[str, float]:
    """The bounds in an annotation, by their names in `annotated_types`."""
    limits: dict[str, float] = {}
    for part in get_args(hint):
        limits |= _limits(part)
        for name in _BOUNDS:
            if isinstance(limit := getattr(part, name, None), int | float):
                limits[name] = limit
    return limits
