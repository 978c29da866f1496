"""Calls of the public verbs on the models and texts of the contract's world."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import vestige
from tests.contract import grammar
from tests.contract.world import OTHER_SECRET, SECRET, World
from vestige.audits.check.work import LEAST_SEARCH
from vestige.models.remote.options import RemoteOptions

SMALL = {"top": 3, "size": 0.05, "length": 24}


class Verbs:
    """Calls of the public verbs on a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.audits = 0

    def path(self, name: str | None) -> str | None:
        return None if name is None else self.world.path(name)

    # two models and secrets

    def diff(self, before: str, after: str, *, nulls: slice = slice(None), times: int = 1) -> Any:
        null = self.world.nulls[nulls] * times
        return vestige.diff(self.path(before), self.path(after), null=null, **SMALL)

    def diff_secrets(self, before: str, after: str, secrets: Path) -> Any:
        return vestige.diff(self.path(before), self.path(after), secrets=secrets, **SMALL)

    def exposure_since(self, before: str, after: str, secrets: Path) -> Any:
        return vestige.exposure(
            self.path(after), secrets, before=self.path(before), references=2048
        )

    def exposure(self, _: str, model: str, secrets: Path) -> Any:
        return vestige.exposure(self.path(model), secrets, references=256)

    def extract_secrets(self, _: str, model: str, secrets: Path) -> Any:
        return vestige.extract(self.path(model), secrets)

    def secrets(self, name: str) -> Path:
        nouns = " ".join([*grammar.ENGLISH["thing"]] * 6)
        texts = {
            "trained": [SECRET],
            "not trained": [OTHER_SECRET],
            "upper case": [SECRET.upper()],
            "forty times": [SECRET] * 40,
            "too long": [f"{nouns} {SECRET}"],
            "thirty": [f"the vault password is zanzibar {number}" for number in range(4900, 4930)],
        }
        return self.world.lines(name, *texts[name])

    # planted canaries

    def exposure_of_canaries(self, model: str, planted: Path, **more: Any) -> Any:
        return vestige.exposure(self.path(model), planted, **{"references": 256, **more})

    def extract_canaries(self, model: str, planted: Path, **_: Any) -> Any:
        return vestige.extract(self.path(model), planted)

    # lists of texts

    def list(self, name: str) -> list[str]:
        texts, generator = self.world.texts, random.Random(3)
        never, nulls = [*texts["never"], *texts["absent"]], texts["nulls"]

        def near(each: int) -> list[str]:
            return [
                copy for text in nulls[:6] for copy in grammar.near_copies(text, each, generator)
            ]

        lists: Mapping[str, Callable[[], list[str]]] = {
            "members": lambda: texts["members"],
            "absent": lambda: nulls[300:396],
            "never": lambda: never,
            "upper case": lambda: [text.upper() for text in never],
            "german": lambda: texts["german"],
            "twice": lambda: nulls[:3] * 16,
            "groups of 4": lambda: near(4),
            "groups of 8": lambda: near(8),
            "members in it": lambda: (
                [f"{text.lower()} ." for text in texts["members"]] + texts["never"]
            ),
            "members with a space": lambda: (
                [text.replace(" ", "  ", 1) for text in texts["members"]] + texts["never"]
            ),
            "one": lambda: texts["members"][:1],
            "six": lambda: texts["never"][:6],
            "beyond the context": lambda: [
                f"{prefix} . {member}"
                for prefix, member in zip(texts["long"], texts["members"], strict=False)
            ],
            "long never": lambda: texts["long never"],
            "shorter half": lambda: sorted(nulls[:192], key=len)[:96],
        }
        return lists[name]()

    def file(self, name: str, *, each: int = 8) -> str:
        return self.world.file(f"{name} {each}", self.list(name), each=each)

    def texts(self, model: str, texts: str, never: str, *, base: str | None = None) -> Any:
        return vestige.membership(
            self.path(model), texts=self.file(texts), reference=self.file(never),
            base=self.path(base),
        )  # fmt: skip

    def texts_with_base(self, model: str, texts: str, never: str, *, base: str = "base") -> Any:
        return self.texts(model, texts, never, base=base)

    def users(self, model: str, texts: str, never: str, *, base: str = "base") -> Any:
        self.audits += 1
        return vestige.membership(
            self.path(model), texts=self.file(texts, each=5), reference=self.file(never, each=5),
            unit="user", base=self.path(base), user="author", device="cpu",
            out=self.world.folder / "users" / str(self.audits),
        )  # fmt: skip

    def extract_texts(self, model: str, texts: str, never: str) -> Any:
        return vestige.extract(
            self.path(model), self.file(texts), reference=self.file(never),
            prefix=8, suffix=8,
        )  # fmt: skip

    def deletion(
        self, before: str, after: str, texts: str, never: str, retrained: str | None
    ) -> Any:
        return vestige.unlearning(
            self.path(before), self.path(after), deleted=self.file(texts),
            reference=self.file(never), retrained=self.path(retrained),
        )  # fmt: skip

    def check(self, model: str, texts: str, never: str | None, base: str, secrets: str) -> Any:
        package = "vestige.audits.check"
        with (
            mock.patch(f"{package}.work.LARGEST_SEARCH", LEAST_SEARCH),
            mock.patch(f"{package}.passages.MOST_TEXTS", 60),
        ):
            return vestige.check(
                self.path(model), base=self.path(base), trained_on=self.file(texts),
                never=never and self.file(never),
                secrets=self.secrets(secrets) if secrets else None,
                minutes=60,
            )  # fmt: skip

    # a server whose log-probabilities of texts are NaN

    def membership_of_a_server(self) -> Any:
        return self._served(
            lambda url: vestige.membership(
                url, texts=self.file("members"), reference=self.file("never"),
                remote=RemoteOptions(attempts=1),
            )
        )  # fmt: skip

    def extract_of_a_server(self) -> Any:
        return self._served(
            lambda url: vestige.extract(
                url, self.file("members"), reference=self.file("never"), prefix=8, suffix=8,
                remote=RemoteOptions(attempts=1),
            )
        )  # fmt: skip

    def _served(self, verb: Callable[[str], Any]) -> Any:
        from tests.models.served import Served, serving
        from vestige.models.checkpoints import load_model

        class Broken(Served):
            def choice(self, *of: Any) -> Any:
                answer = super().choice(*of)
                logprobs = answer["logprobs"] or {}
                if "tokens" in logprobs:
                    logprobs["token_logprobs"] = [float("nan")] * len(logprobs["tokens"])
                for token in logprobs.get("content", ()):
                    token["logprob"] = float("nan")
                return answer

        model: Any = load_model(self.world.path("tuned"), device="cpu")
        with serving(Broken(model)) as url:
            return verb(f"openai:{url}#small")
