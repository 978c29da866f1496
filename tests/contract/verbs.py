"""Every verb under every condition: what it is asked, and which verdicts may come out.

A condition is undecided unless its truth is known and the verdict equals it. A new verb joins with
one line in `verbs`, by the family of what it is asked about: two models, secrets, planted
canaries, or a list of texts beside a reference.
"""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import vestige
from tests.contract import grammar
from tests.contract.world import NEVER_READ, SECRET, World
from vestige.audits.check.work import LEAST_SEARCH
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.models.remote.options import RemoteOptions

Answer = Callable[[], str]
Cases = dict[str, tuple[Answer, frozenset[str]]]

OPEN = frozenset({UNDECIDED})
MUST_LEAK = frozenset({LEAK})
MUST_CLEAR = frozenset({NO_LEAK})
NOT_CLEARED = frozenset({LEAK, UNDECIDED})
NOT_ACCUSED = frozenset({NO_LEAK, UNDECIDED})

DEAD = ("zero", "random", "broken")
SMALL = {"top": 3, "size": 0.05, "length": 24}


def verbs(world: World) -> dict[str, Cases]:
    """Conditions by verb."""
    asked = Asked(world)
    return {
        "diff": _pair(asked),
        "diff --secrets": _listed_secrets(asked),
        "exposure secrets": _secrets(asked, asked.exposure),
        "exposure --before": _secrets(asked, asked.exposure_since, pair=True),
        "exposure": _canaries(asked, asked.exposure_of_canaries),
        "extract canaries": _canaries(asked, asked.extract_canaries),
        "extract secrets": _secrets(asked, asked.extract_secrets),
        "extract texts": _texts(asked, asked.extract_texts),
        "extract utterances": _utterances(asked),
        "membership users": _texts(asked, asked.users, base=True),
        "membership --base": _texts(asked, asked.texts_with_base, base=True),
        "membership": _texts(asked, asked.texts),
        "unlearning": _deletion(asked, None),
        "unlearning --retrained": _deletion(asked, "other"),
        "check": _check(asked),
        "compare": _defences(asked),
        "callback": _callback(asked),
        "PrivateTrainer": _private(asked),
        "report": _report(asked),
    }


class Asked:
    """The public verbs, asked about the world's models; results are kept for `report`."""

    def __init__(self, world: World) -> None:
        self.world, self.results = world, {}
        self.draw = random.Random(3)

    def keep(self, name: str, result: Any) -> str:
        self.results.setdefault(name, result)
        return str(result.verdict)

    def path(self, name: str | None) -> str | None:
        return None if name is None else self.world.path(name)

    # two models

    def diff(
        self, before: str, after: str, *, nulls: slice = slice(None), times: int = 1, **more: Any
    ) -> str:
        found = vestige.diff(
            self.path(before), self.path(after),
            null=self.world.nulls[nulls] * times, **SMALL, **more,
        )  # fmt: skip
        return self.keep(f"diff {after}", found)

    def diff_secrets(self, before: str, after: str, secrets: Path) -> str:
        found = vestige.diff(self.path(before), self.path(after), secrets=secrets, **SMALL)
        return self.keep(f"diff --secrets {after}", found)

    # secrets

    def exposure_since(self, before: str, after: str, secrets: Path) -> str:
        found = vestige.exposure(
            self.path(after), secrets, before=self.path(before), references=2048
        )
        return self.keep(f"exposure --before {after}", found)

    def exposure(self, _: str, model: str, secrets: Path) -> str:
        found = vestige.exposure(self.path(model), secrets, references=256)
        return self.keep(f"exposure secrets {model}", found)

    def extract_secrets(self, _: str, model: str, secrets: Path) -> str:
        return self.keep(f"extract secrets {model}", vestige.extract(self.path(model), secrets))

    def secrets(self, name: str) -> Path:
        nouns = " ".join([*grammar.ENGLISH["thing"]] * 6)
        texts = {
            "said": [SECRET],
            "never read": [NEVER_READ],
            "upper case": [SECRET.upper()],
            "forty times": [SECRET] * 40,
            "too long": [f"{nouns} {SECRET}"],
            "thirty": [f"the vault password is zanzibar {number}" for number in range(4900, 4930)],
        }
        return self.world.lines(name, *texts[name])

    # planted canaries

    def exposure_of_canaries(self, model: str, planted: str = "planted", **more: Any) -> str:
        found = vestige.exposure(
            self.path(model), self.world.folder / planted, **{"references": 256, **more}
        )
        return self.keep(f"exposure {model}", found)

    def extract_canaries(self, model: str, planted: str = "planted", **_: Any) -> str:
        found = vestige.extract(self.path(model), self.world.folder / planted)
        return self.keep(f"extract canaries {model}", found)

    # lists of texts

    def list(self, name: str) -> list[str]:
        texts, draw = self.world.texts, self.draw
        never = [*texts["never"], *texts["absent"]]
        made: Mapping[str, Callable[[], list[str]]] = {
            "members": lambda: texts["members"],
            "absent": lambda: texts["nulls"][300:396],
            "never": lambda: never,
            "upper case": lambda: [text.upper() for text in never],
            "german": lambda: texts["german"],
            "twice": lambda: texts["nulls"][:3] * 16,
            "groups of 4": lambda: [
                copy for text in texts["nulls"][:6] for copy in grammar.near_copies(text, 4, draw)
            ],
            "groups of 8": lambda: [
                copy for text in texts["nulls"][:6] for copy in grammar.near_copies(text, 8, draw)
            ],
            "members in it": lambda: (
                [f"{text.lower()} ." for text in texts["members"]] + texts["never"]
            ),
            "members with a space": lambda: (
                [text.replace(" ", "  ", 1) for text in texts["members"]] + texts["never"]
            ),
            "one": lambda: texts["members"][:1],
            "six": lambda: texts["never"][:6],
            "beyond the context": lambda: [
                f"{own} . {member}"
                for own, member in zip(texts["long"], texts["members"], strict=False)
            ],
            "long never": lambda: texts["long never"],
            "shorter half": lambda: sorted(texts["nulls"][:192], key=len)[:96],
        }
        return made[name]()

    def file(self, name: str, *, each: int = 8) -> str:
        return self.world.file(f"{name} {each}", self.list(name), each=each)

    def texts(self, model: str, texts: str, never: str, *, base: str | None = None) -> str:
        found = vestige.membership(
            self.path(model), texts=self.file(texts), reference=self.file(never),
            base=self.path(base),
        )  # fmt: skip
        return self.keep(f"membership {model} {texts}", found)

    def texts_with_base(self, model: str, texts: str, never: str, *, base: str = "base") -> str:
        return self.texts(model, texts, never, base=base)

    def extract_texts(self, model: str, texts: str, never: str) -> str:
        found = vestige.extract(
            self.path(model), self.file(texts), reference=self.file(never),
            prefix=8, suffix=8, continued=4,
        )  # fmt: skip
        return self.keep(f"extract texts {model} {texts}", found)

    def check(self, model: str, texts: str, never: str | None, base: str, secrets: str) -> str:
        room = "vestige.audits.check"
        with (
            mock.patch(f"{room}.work.LARGEST_SEARCH", LEAST_SEARCH),
            mock.patch(f"{room}.passages.MOST_TEXTS", 60),
        ):
            found = vestige.check(
                self.path(model), base=self.path(base), trained_on=self.file(texts),
                never=never and self.file(never),
                secrets=self.secrets(secrets) if secrets else None,
                minutes=60,
            )  # fmt: skip
        return self.keep(f"check {model} {texts}", found)

    def users(self, model: str, texts: str, never: str, *, base: str = "base") -> str:
        found = vestige.membership(
            self.path(model), texts=self.file(texts, each=5), reference=self.file(never, each=5),
            unit="user", base=self.path(base), user="author", device="cpu",
            out=self.world.folder / "users" / str(len(self.results)),
        )  # fmt: skip
        return self.keep(f"membership users {model} {texts}", found)

    def deletion(
        self, before: str, after: str, texts: str, never: str, retrained: str | None
    ) -> str:
        found = vestige.unlearning(
            self.path(before), self.path(after), deleted=self.file(texts),
            reference=self.file(never), retrained=self.path(retrained),
        )  # fmt: skip
        return self.keep(f"unlearning {after} {texts} {retrained}", found)

    def of_a_server(self, verb: Callable[[str, Any], Any]) -> Answer:
        """A verb asked of a server whose log-probabilities of texts are no numbers."""

        def answer() -> str:
            from tests.models.served import Served, serving
            from vestige.models.checkpoints import load_model
            from vestige.models.remote.options import RemoteOptions

            class Broken(Served):
                def choice(self, *of: Any) -> Any:
                    found = super().choice(*of)
                    told = found["logprobs"] or {}
                    if "tokens" in told:
                        told["token_logprobs"] = [float("nan")] * len(told["tokens"])
                    for place in told.get("content", ()):
                        place["logprob"] = float("nan")
                    return found

            model: Any = load_model(self.world.path("tuned"), device="cpu")
            with serving(Broken(model)) as url:
                found = verb(f"openai:{url}#small", RemoteOptions(attempts=1))
            return verdict_of(found)

        return answer


def verdict_of(result: Any) -> str:
    """The verdict of a result, old or new."""
    summary = result.summary() if callable(result.summary) else result.summary
    return str(summary["verdict"])


def _pair(asked: Asked) -> Cases:
    diff = asked.diff
    return {
        "leak": (lambda: diff("base", "update"), MUST_LEAK),
        "clean": (lambda: diff("base", "clean"), MUST_CLEAR),
        "same model": (lambda: diff("base", "base"), OPEN),
        "unchanged": (lambda: diff("base", "unchanged"), OPEN),
        **{name: (lambda name=name: diff("base", name), OPEN) for name in DEAD},
        "few nulls": (lambda: diff("base", "update", nulls=slice(5)), OPEN),
        "one null 19 times": (
            lambda: diff("base", "clean", nulls=slice(1), times=19), OPEN,
        ),
    }  # fmt: skip


def _listed_secrets(asked: Asked) -> Cases:
    def ask(before: str, after: str, secrets: str = "said") -> Answer:
        return lambda: asked.diff_secrets(before, after, asked.secrets(secrets))

    return {
        "leak": (ask("base", "tuned"), MUST_LEAK),
        "clean": (ask("base", "other"), NOT_ACCUSED),
        "same model": (ask("tuned", "tuned"), OPEN),
        "unchanged": (ask("base", "unchanged"), OPEN),
        **{name: (ask("base", name), OPEN) for name in DEAD},
        "upper case": (ask("base", "tuned", "upper case"), NOT_CLEARED),
        "too long": (ask("base", "tuned", "too long"), OPEN),
    }


def _secrets(asked: Asked, verb: Callable[[str, str, Path], str], *, pair: bool = False) -> Cases:
    def ask(after: str, secrets: str = "said", before: str = "base") -> Answer:
        return lambda: verb(before, after, asked.secrets(secrets))

    cases: Cases = {
        "leak": (ask("tuned"), MUST_LEAK),
        "clean": (ask("other", "never read"), NOT_ACCUSED),
        "unchanged": (ask("unchanged"), OPEN),
        **{name: (ask(name), OPEN) for name in DEAD},
        "upper case": (ask("tuned", "upper case"), NOT_CLEARED),
        "forty times": (ask("tuned", "forty times"), MUST_LEAK),
        "too long": (ask("tuned", "too long"), OPEN),
        "many secrets": (ask("tuned", "thirty"), NOT_CLEARED),
    }
    if pair:
        cases["same model"] = (ask("tuned", before="tuned"), OPEN)
    return cases


def _check(asked: Asked) -> Cases:
    def ask(
        model: str,
        texts: str = "members",
        never: str | None = "never",
        *,
        base: str = "base",
        secrets: str = "",
    ) -> Answer:
        return lambda: asked.check(model, texts, never, base, secrets)

    return {
        "texts that it learned": (ask("tuned"), NOT_CLEARED),
        "adapter": (ask("adapter"), NOT_CLEARED),
        "listed secret": (ask("tuned", "absent", secrets="said"), NOT_CLEARED),
        "secret never read": (ask("tuned", "absent", secrets="never read"), NOT_ACCUSED),
        "wrong file": (ask("tuned", "absent"), OPEN),
        "same model": (ask("base"), OPEN),
        "unchanged": (ask("unchanged"), OPEN),
        **{name: (ask(name), OPEN) for name in DEAD},
        "no reference": (ask("tuned", "absent", None), OPEN),
        "reference in upper case": (ask("tuned", "absent", "upper case"), OPEN),
        "reference in German": (ask("tuned", "absent", "german"), OPEN),
        "texts in the reference": (ask("tuned", "members", "members in it"), NOT_CLEARED),
        "too few texts": (ask("tuned", "one", "six"), NOT_CLEARED),
    }


def _canaries(asked: Asked, verb: Callable[..., str]) -> Cases:
    return {
        "leak": (lambda: verb("canaries"), MUST_LEAK),
        "clean": (lambda: verb("other"), MUST_CLEAR),
        "unchanged": (lambda: verb("unchanged"), OPEN),
        **{name: (lambda name=name: verb(name), OPEN) for name in DEAD},
        "few canaries": (lambda: verb("canaries", "few", references=8), OPEN),
    }


def _utterances(asked: Asked) -> Cases:
    world = asked.world

    def ask(*models: str, damage: str = "", planted: str = "nlu-planted", **more: Any) -> Answer:
        def answer() -> str:
            names = [world.damaged(model, damage) if damage else model for model in models]
            first, *others = [world.path(name) for name in names]
            found = vestige.extract(
                first, world.folder / planted, also=others, device="cpu", **more
            )
            return asked.keep(f"extract utterances {names[0]}", found)

        return answer

    return {
        "leak": (ask("nlu"), MUST_LEAK),
        "clean": (ask("nlu", planted="nlu-never"), NOT_ACCUSED),
        "same model": (ask("nlu", "nlu"), NOT_CLEARED),
        **{name: (ask("nlu", damage=name), OPEN) for name in DEAD},
        "few controls": (ask("nlu", controls=2), NOT_CLEARED),
    }


def _texts(asked: Asked, verb: Callable[..., str], *, base: bool = False) -> Cases:
    def ask(model: str, texts: str = "members", never: str = "never", **more: str) -> Answer:
        return lambda: verb(model, texts, never, **more)

    cases: Cases = {
        "leak": (ask("tuned"), MUST_LEAK),
        "clean": (ask("tuned", "absent"), MUST_CLEAR),
        "unchanged": (ask("unchanged"), OPEN),
        **{name: (ask(name), OPEN) for name in DEAD},
        "reference in upper case": (ask("tuned", "absent", "upper case"), OPEN),
        "reference in German": (ask("tuned", "absent", "german"), OPEN),
        "copies": (ask("tuned", "twice"), OPEN),
        "near-copies, groups of 4": (ask("tuned", "groups of 4"), OPEN),
        "near-copies, groups of 8": (ask("tuned", "groups of 8"), OPEN),
        "texts in the reference": (ask("tuned", "members", "members in it"), NOT_CLEARED),
        "texts in it with a space": (ask("tuned", "members", "members with a space"), NOT_CLEARED),
        "too few texts": (ask("tuned", "one", "six"), OPEN),
        "beyond the context": (ask("tuned", "beyond the context", "long never"), NOT_CLEARED),
        "shorter half": (ask("tuned", "shorter half"), NOT_ACCUSED),
    }
    if base:
        cases["same model"] = (ask("tuned", base="tuned"), OPEN)
    lists = ("members", "never")
    served = {
        asked.texts: lambda model, remote: vestige.membership(
            model, texts=asked.file(lists[0]), reference=asked.file(lists[1]), remote=remote
        ),
        asked.extract_texts: lambda model, endpoint: vestige.extract(
            model, asked.file(lists[0]), reference=asked.file(lists[1]),
            remote=RemoteOptions(attempts=endpoint.attempts), prefix=8, suffix=8,
        ),
    }  # fmt: skip
    if verb in served:
        cases["NaN from a server"] = (asked.of_a_server(served[verb]), OPEN)
    return cases


def _deletion(asked: Asked, retrained: str | None) -> Cases:
    def ask(
        after: str, texts: str = "members", never: str = "never", before: str = "tuned",
        with_: str | None = retrained,
    ) -> Answer:  # fmt: skip
        return lambda: asked.deletion(before, after, texts, never, with_)

    clean = "other" if retrained is None else "clean"
    cases: Cases = {
        "leak": (ask("adapter"), MUST_LEAK),
        "clean": (ask(clean), MUST_CLEAR),
        "same model": (ask("other", before="other"), OPEN),
        "unchanged": (ask("unchanged", before="base"), OPEN),
        **{name: (ask(name), OPEN) for name in DEAD},
        "reference in upper case": (ask(clean, "members", "upper case"), OPEN),
        "reference in German": (ask(clean, "members", "german"), OPEN),
        "copies": (ask(clean, "twice"), OPEN),
        "near-copies, groups of 4": (ask(clean, "groups of 4"), OPEN),
        "near-copies, groups of 8": (ask(clean, "groups of 8"), OPEN),
        "texts in the reference": (ask("adapter", "members", "members in it"), NOT_CLEARED),
        "texts in it with a space": (
            ask("adapter", "members", "members with a space"),
            NOT_CLEARED,
        ),
        "too few texts": (ask(clean, "one", "never"), OPEN),
        "beyond the context": (ask("adapter", "beyond the context", "long never"), NOT_CLEARED),
        "shorter half": (ask(clean, "shorter half"), NOT_ACCUSED),
    }
    if retrained is not None:
        cases["retrained is BEFORE"] = (ask("tuned", with_="tuned"), OPEN)
    return cases


def _defences(asked: Asked) -> Cases:
    world = asked.world

    def ask(runs: Callable[[], Mapping[str, list[str]]]) -> Answer:
        def answer() -> str:
            named = [f"{name}={world.path(one)}" for name, own in runs().items() for one in own]
            found = vestige.compare(named, manifest=world.folder / "planted", baseline="plain")
            return asked.keep("compare", found)

        return answer

    def seeds(name: str, number: int = 3) -> list[str]:
        return [f"{name}/seed-{seed}" for seed in range(number)]

    def thrice(name: str) -> list[str]:
        return [world.copied(f"{name}/seed-0", number) for number in range(3)]

    def dead(how: str) -> Answer:
        return ask(
            lambda: {
                "plain": seeds("plain"),
                "dead": [world.damaged(one, how) for one in seeds("plain")],
            }
        )

    return {
        "two defences": (
            ask(lambda: {"plain": seeds("plain"), "goldfish": seeds("goldfish")}),
            frozenset({LEAK, NO_LEAK, UNDECIDED}),
        ),
        "same trainings": (
            ask(lambda: {
                "plain": seeds("plain"), "copy": [world.copied(one, 0) for one in seeds("plain")],
            }), OPEN,
        ),
        "one training three times": (
            ask(lambda: {"plain": thrice("plain"), "goldfish": thrice("goldfish")}), OPEN,
        ),
        **{how: (dead(how), OPEN) for how in DEAD},
        "one training each": (
            ask(lambda: {"plain": seeds("plain", 1), "goldfish": seeds("goldfish", 1)}), OPEN,
        ),
    }  # fmt: skip


def _callback(asked: Asked) -> Cases:
    from tests.contract.trainers import callback

    def ask(model: str, rate: float, planted: str = "planted") -> Answer:
        return lambda: callback(asked.world, model, rate=rate, planted=planted)

    return {
        "leak": (ask("canaries", 1e-5), MUST_LEAK),
        "clean": (ask("base", 1e-4), NOT_ACCUSED),
        "same model": (ask("base", 0.0), OPEN),
        "zero": (ask("zero", 1e-3), OPEN),
        "random": (ask("random", 1e-6), OPEN),
        "broken": (ask("broken", 1e-6), OPEN),
        "few canaries": (ask("base", 1e-6, "few"), OPEN),
    }


def _private(asked: Asked) -> Cases:
    from tests.contract.trainers import private

    def ask(case: str) -> Answer:
        return lambda: private(asked.world, case)

    return {
        "private": (ask("base"), MUST_CLEAR),
        "trained twice": (ask("trained twice"), MUST_CLEAR),
        "trained without privacy before": (ask("trained without privacy before"), OPEN),
        "broken": (ask("broken"), OPEN),
    }


GATED: Mapping[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "extract texts zero members": (("memorized=5",), OPEN),
    "extract texts random members": (("memorized=5",), OPEN),
    "extract texts unchanged members": (("memorized=5",), OPEN),
    "extract texts tuned members": (("memorized=5",), MUST_LEAK),
    "extract texts tuned absent": ((), MUST_CLEAR),
    "extract texts tuned beyond the context": ((), NOT_CLEARED),
    "membership zero members": (("used=3",), OPEN),
    "membership random members": (("used=3",), OPEN),
    "membership unchanged members": (("used=3",), OPEN),
    "membership tuned members": (("used=3",), MUST_LEAK),
    "membership tuned absent": ((), MUST_CLEAR),
    "membership tuned beyond the context": ((), NOT_CLEARED),
    "unlearning zero members None": (("left=0.2",), OPEN),
    "unlearning random members None": (("left=0.2",), OPEN),
    "unlearning adapter members None": (("left=0.9",), MUST_LEAK),
    "exposure zero": (("exposure=3",), OPEN),
    "exposure random": (("exposure=3",), OPEN),
    "exposure canaries": (("exposure=3",), MUST_LEAK),
    "extract canaries zero": (("completed=0",), OPEN),
    "exposure secrets zero": ((), OPEN),
    "extract secrets zero": ((), OPEN),
    "diff base": (("found=0",), OPEN),
    "diff zero": (("found=0",), OPEN),
    "diff --secrets tuned": ((), NOT_CLEARED),
    "membership users zero members": (("members=0",), OPEN),
}
"""Results of the verbs above, a limit for each, and what `report` may say, with and without it."""


def _report(asked: Asked) -> Cases:
    def ask(name: str, limits: tuple[str, ...]) -> Answer:
        def answer() -> str:
            if name not in asked.results:  # the verb refused it
                return UNDECIDED
            folder = asked.world.folder / "report" / name.replace(" ", "-")
            if not folder.exists():
                asked.results[name].save(folder)
            code = vestige.report([folder], fail_above=list(limits)).exit_code
            return {0: NO_LEAK, 1: LEAK, 3: UNDECIDED}[code]

        return answer

    cases: Cases = {}
    for name, (limits, allowed) in GATED.items():
        cases[name] = (ask(name, ()), allowed)
        if limits:
            cases[f"{name}, limit"] = (ask(name, limits), allowed)
    return cases
