"""Every verb under every condition, with the verdicts that are allowed.

The only allowed verdict is "undecided" unless the truth of a condition is known. A new verb needs
one line in `cells`, by its input: two models, secrets, planted canaries, or texts with a reference.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import vestige
from tests.contract.verbs import Verbs
from tests.contract.world import World
from vestige.claims import LEAK, NO_LEAK, UNDECIDED

OPEN = frozenset({UNDECIDED})
MUST_LEAK = frozenset({LEAK})
MUST_CLEAR = frozenset({NO_LEAK})
NOT_CLEARED = frozenset({LEAK, UNDECIDED})
NOT_ACCUSED = frozenset({NO_LEAK, UNDECIDED})
ANY = frozenset({LEAK, NO_LEAK, UNDECIDED})

DEAD = ("zero", "random", "broken")


class Cell(NamedTuple):
    """A call that returns a result or a verdict, and the verdicts that are allowed."""

    call: Callable[[], Any]
    allowed: frozenset[str]


Cells = dict[str, Cell]


def cells(world: World) -> dict[str, Cells]:
    """Conditions by verb."""
    verbs = Verbs(world)
    return {
        "diff": _pair(verbs),
        "diff --secrets": _listed_secrets(verbs),
        "exposure secrets": _secrets(verbs, verbs.exposure),
        "exposure --before": _secrets(verbs, verbs.exposure_since, pair=True),
        "exposure": _canaries(verbs, verbs.exposure_of_canaries),
        "extract canaries": _canaries(verbs, verbs.extract_canaries),
        "extract secrets": _secrets(verbs, verbs.extract_secrets),
        "extract texts": _texts(verbs, verbs.extract_texts, served=verbs.extract_of_a_server),
        "extract utterances": _utterances(verbs),
        "membership users": _texts(verbs, verbs.users, base=True),
        "membership --base": _texts(verbs, verbs.texts_with_base, base=True),
        "membership": _texts(verbs, verbs.texts, served=verbs.membership_of_a_server),
        "unlearning": _deletion(verbs, None),
        "unlearning --retrained": _deletion(verbs, "other"),
        "check": _check(verbs),
        "compare": _defences(verbs),
        "callback": _callback(world),
    }


def _pair(verbs: Verbs) -> Cells:
    diff = verbs.diff
    return {
        "leak": Cell(lambda: diff("base", "update"), MUST_LEAK),
        "clean": Cell(lambda: diff("base", "clean"), MUST_CLEAR),
        "same model": Cell(lambda: diff("base", "base"), OPEN),
        "unchanged": Cell(lambda: diff("base", "unchanged"), OPEN),
        **{name: Cell(lambda name=name: diff("base", name), OPEN) for name in DEAD},
        "few nulls": Cell(lambda: diff("base", "update", nulls=slice(5)), OPEN),
        "one null 19 times": Cell(
            lambda: diff("base", "clean", nulls=slice(1), times=19), OPEN
        ),
    }  # fmt: skip


def _listed_secrets(verbs: Verbs) -> Cells:
    def cell(before: str, after: str, allowed: frozenset[str], secrets: str = "trained") -> Cell:
        return Cell(lambda: verbs.diff_secrets(before, after, verbs.secrets(secrets)), allowed)

    return {
        "leak": cell("base", "tuned", MUST_LEAK),
        "clean": cell("base", "other", NOT_ACCUSED),
        "same model": cell("tuned", "tuned", OPEN),
        "unchanged": cell("base", "unchanged", OPEN),
        **{name: cell("base", name, OPEN) for name in DEAD},
        "upper case": cell("base", "tuned", NOT_CLEARED, "upper case"),
        "too long": cell("base", "tuned", OPEN, "too long"),
    }


def _secrets(verbs: Verbs, verb: Callable[[str, str, Path], Any], *, pair: bool = False) -> Cells:
    def cell(
        after: str, allowed: frozenset[str], secrets: str = "trained", before: str = "base"
    ) -> Cell:
        return Cell(lambda: verb(before, after, verbs.secrets(secrets)), allowed)

    return {
        "leak": cell("tuned", MUST_LEAK),
        "clean": cell("other", NOT_ACCUSED, "not trained"),
        "unchanged": cell("unchanged", OPEN),
        **{name: cell(name, OPEN) for name in DEAD},
        "upper case": cell("tuned", NOT_CLEARED, "upper case"),
        "forty times": cell("tuned", MUST_LEAK, "forty times"),
        "too long": cell("tuned", OPEN, "too long"),
        "many secrets": cell("tuned", NOT_CLEARED, "thirty"),
        **({"same model": cell("tuned", OPEN, before="tuned")} if pair else {}),
    }


def _canaries(verbs: Verbs, verb: Callable[..., Any]) -> Cells:
    def cell(model: str, allowed: frozenset[str], planted: str = "planted", **more: Any) -> Cell:
        return Cell(lambda: verb(model, getattr(verbs.world, planted), **more), allowed)

    return {
        "leak": cell("canaries", MUST_LEAK),
        "clean": cell("other", MUST_CLEAR),
        "unchanged": cell("unchanged", OPEN),
        **{name: cell(name, OPEN) for name in DEAD},
        "few canaries": cell("canaries", OPEN, "few", references=8),
    }


def _utterances(verbs: Verbs) -> Cells:
    world = verbs.world

    def cell(
        allowed: frozenset[str], *, damage: str = "", planted: str = "nlu-planted", **more: Any
    ) -> Cell:
        def extract() -> Any:
            model = world.damaged("nlu", damage) if damage else world.path("nlu")
            return vestige.extract(model, world.folder / planted, device="cpu", **more)

        return Cell(extract, allowed)

    return {
        "leak": cell(MUST_LEAK),
        "clean": cell(NOT_ACCUSED, planted="nlu-never"),
        **{name: cell(OPEN, damage=name) for name in DEAD},
        "few controls": cell(NOT_CLEARED, controls=2),
    }


def _texts(
    verbs: Verbs,
    verb: Callable[..., Any],
    *,
    base: bool = False,
    served: Callable[[], Any] | None = None,
) -> Cells:
    def cell(
        model: str, allowed: frozenset[str], texts: str = "members", never: str = "never",
        **more: str,
    ) -> Cell:  # fmt: skip
        return Cell(lambda: verb(model, texts, never, **more), allowed)

    return {
        "leak": cell("tuned", MUST_LEAK),
        "clean": cell("tuned", MUST_CLEAR, "absent"),
        "unchanged": cell("unchanged", OPEN),
        **{name: cell(name, OPEN) for name in DEAD},
        **_lists(lambda *what: cell("tuned", *what), "absent"),
        "too few texts": cell("tuned", OPEN, "one", "six"),
        **({"same model": cell("tuned", OPEN, base="tuned")} if base else {}),
        **({"NaN from a server": Cell(served, OPEN)} if served else {}),
    }


def _lists(
    cell: Callable[..., Cell], texts: str, clean: Callable[..., Cell] | None = None
) -> Cells:
    """Faults of a list of texts or of its reference; `clean` makes cells of a clean model."""
    clean = clean or cell
    return {
        "reference in upper case": clean(OPEN, texts, "upper case"),
        "reference in German": clean(OPEN, texts, "german"),
        "copies": clean(OPEN, "twice"),
        "near-copies, groups of 4": clean(OPEN, "groups of 4"),
        "near-copies, groups of 8": clean(OPEN, "groups of 8"),
        "texts in the reference": cell(NOT_CLEARED, "members", "members in it"),
        "texts in it with a space": cell(NOT_CLEARED, "members", "members with a space"),
        "beyond the context": cell(NOT_CLEARED, "beyond the context", "long never"),
        "shorter half": clean(NOT_ACCUSED, "shorter half"),
    }


def _deletion(verbs: Verbs, retrained: str | None) -> Cells:
    def cell(
        after: str, allowed: frozenset[str], texts: str = "members", never: str = "never",
        before: str = "tuned", other: str | None = retrained,
    ) -> Cell:  # fmt: skip
        return Cell(lambda: verbs.deletion(before, after, texts, never, other), allowed)

    clean = "other" if retrained is None else "clean"
    return {
        "leak": cell("adapter", MUST_LEAK),
        "clean": cell(clean, MUST_CLEAR),
        "same model": cell("other", OPEN, before="other"),
        "unchanged": cell("unchanged", OPEN, before="base"),
        **{name: cell(name, OPEN) for name in DEAD},
        **_lists(lambda *what: cell("adapter", *what), "members", lambda *what: cell(clean, *what)),
        "too few texts": cell(clean, OPEN, "one", "never"),
        **(
            {} if retrained is None else {"retrained is BEFORE": cell("tuned", OPEN, other="tuned")}
        ),
    }


def _check(verbs: Verbs) -> Cells:
    def cell(
        model: str, allowed: frozenset[str], texts: str = "members", never: str | None = "never",
        secrets: str = "",
    ) -> Cell:  # fmt: skip
        return Cell(lambda: verbs.check(model, texts, never, "base", secrets), allowed)

    return {
        "leak": cell("tuned", NOT_CLEARED),
        "adapter": cell("adapter", NOT_CLEARED),
        "listed secret": cell("tuned", NOT_CLEARED, "absent", secrets="trained"),
        "untrained secret": cell("tuned", NOT_ACCUSED, "absent", secrets="not trained"),
        "wrong file": cell("tuned", OPEN, "absent"),
        "same model": cell("base", OPEN),
        "unchanged": cell("unchanged", OPEN),
        **{name: cell(name, OPEN) for name in DEAD},
        "no reference": cell("tuned", OPEN, "absent", None),
        "reference in upper case": cell("tuned", OPEN, "absent", "upper case"),
        "reference in German": cell("tuned", OPEN, "absent", "german"),
        "texts in the reference": cell("tuned", NOT_CLEARED, "members", "members in it"),
        "too few texts": cell("tuned", NOT_CLEARED, "one", "six"),
    }


def _defences(verbs: Verbs) -> Cells:
    world = verbs.world

    def cell(allowed: frozenset[str], runs: Callable[[], Mapping[str, list[str]]]) -> Cell:
        def compare() -> Any:
            trainings = [f"{name}={path}" for name, paths in runs().items() for path in paths]
            return vestige.compare(trainings, manifest=world.planted, baseline="plain")

        return Cell(compare, allowed)

    def seeds(name: str, number: int = 3) -> list[str]:
        return [world.path(f"{name}/seed-{seed}") for seed in range(number)]

    def copies(name: str) -> list[str]:
        return [world.copied(f"{name}/seed-{seed}", 0) for seed in range(3)]

    def thrice(name: str) -> list[str]:
        return [world.copied(f"{name}/seed-0", number) for number in range(3)]

    def damaged(kind: str) -> list[str]:
        return [world.damaged(f"plain/seed-{seed}", kind) for seed in range(3)]

    return {
        "leak": cell(ANY, lambda: {"plain": seeds("plain"), "goldfish": seeds("goldfish")}),
        "same trainings": cell(OPEN, lambda: {"plain": seeds("plain"), "copy": copies("plain")}),
        "one training three times": cell(
            OPEN, lambda: {"plain": thrice("plain"), "goldfish": thrice("goldfish")}
        ),
        **{
            kind: cell(OPEN, lambda kind=kind: {"plain": seeds("plain"), "dead": damaged(kind)})
            for kind in DEAD
        },
        "one training each": cell(
            OPEN, lambda: {"plain": seeds("plain", 1), "goldfish": seeds("goldfish", 1)}
        ),
    }


def _callback(world: World) -> Cells:
    from tests.contract.trainers import callback

    def cell(model: str, rate: float, allowed: frozenset[str], planted: str = "planted") -> Cell:
        return Cell(
            lambda: callback(world, model, rate=rate, planted=getattr(world, planted)), allowed
        )

    return {
        "leak": cell("canaries", 1e-5, MUST_LEAK),
        "clean": cell("base", 1e-4, NOT_ACCUSED),
        "same model": cell("base", 0.0, OPEN),
        "zero": cell("zero", 1e-3, OPEN),
        "random": cell("random", 1e-6, OPEN),
        "broken": cell("broken", 1e-6, OPEN),
        "few canaries": cell("base", 1e-6, OPEN, "few"),
    }
