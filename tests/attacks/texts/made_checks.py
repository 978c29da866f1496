"""Checks that pass, for results that no workflow made."""

from vestige.claims import REQUIRED, Check


def passed(verb: str) -> tuple[Check, ...]:
    """All that the verb requires but "powerful", which results make themselves."""
    return tuple(
        Check(name, "passed", f"{name} passed.") for name in REQUIRED[verb] if name != "powerful"
    )
