"""Translators: the command `apertium`, and models of the Hugging Face hub.

Both are callables from texts to as many texts, as `obfuscation.back_translated` takes them; any
other such callable does as well. No text leaves this machine.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vestige import _validate
from vestige.errors import DataError

_LINE = "\n\n"  # apertium never moves words over an empty line


@dataclass(frozen=True)
class Apertium:
    """Translation by rules, with the command `apertium` (Forcada et al. 2011).

    Blanks and line breaks inside a text become one blank. Unknown words stay as they are.

    Attributes:
        direction: a mode that is installed, "eng-spa" or "spa-eng" for instance.
        command: the program, where it is not on the path.
        timeout: seconds for one call.
    """

    direction: str
    command: str = "apertium"
    timeout: float = 600

    def __call__(self, texts: list[str]) -> list[str]:
        """As many translations as texts.

        Raises:
            DataError: the command or the direction is not installed, fails, or takes too long.
        """
        return _all_but_blank(self._lines, [" ".join(text.split()) for text in texts])

    def _lines(self, texts: list[str]) -> list[str]:
        lines = [line.strip() for line in self._run(_LINE.join(texts) + "\n").strip().split(_LINE)]
        if len(lines) == len(texts):
            return lines
        if len(texts) == 1:
            return [" ".join(" ".join(lines).split())]
        middle = len(texts) // 2
        return self._lines(texts[:middle]) + self._lines(texts[middle:])

    def _run(self, text: str) -> str:
        try:
            done = subprocess.run(
                [self.command, "-u", "-f", "txt", self.direction],
                input=text.encode(),
                capture_output=True,
                timeout=self.timeout,
                check=False,
            )
        except FileNotFoundError as error:
            raise DataError(
                f"the command {self.command} is not installed",
                remedy="Install Debian's apertium and a pair such as apertium-eng-spa.",
            ) from error
        except (subprocess.TimeoutExpired, OSError) as error:
            raise DataError(
                f"the command {self.command} did not translate: {type(error).__name__}",
                remedy="Try `apertium -l`, or pass fewer texts at once.",
            ) from error
        if done.returncode or not done.stdout.strip():
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise DataError(
                f"{self.command} {self.direction} failed with code {done.returncode}"
                + (f": {said[0]}" if said else ""),
                remedy="`apertium -l` lists the directions; Debian's apertium-eng-spa has two.",
            )
        return done.stdout.decode(errors="replace")


@dataclass(frozen=True)
class HuggingFaceTranslator:
    """Translation by an encoder-decoder model, read when it is first needed.

    Attributes:
        name: of a model on the hub ("Helsinki-NLP/opus-mt-en-es"), or its folder.
        batch: texts that are translated together.
        longest: tokens of a text and of its translation at most; what is longer is cut.
    """

    name: str | Path
    batch: int = 16
    longest: int = 256

    def __post_init__(self) -> None:
        _validate.positive(batch=self.batch, longest=self.longest)

    def __call__(self, texts: list[str]) -> list[str]:
        """As many translations as texts.

        Raises:
            DataError: there is no such model, or it is none that translates.
        """
        return _all_but_blank(self._translated, texts)

    def _translated(self, texts: list[str]) -> list[str]:
        tokenizer, model = _loaded(str(self.name))
        done: list[str] = []
        for start in range(0, len(texts), self.batch):
            block = texts[start : start + self.batch]
            read = tokenizer(
                block, return_tensors="pt", padding=True, truncation=True, max_length=self.longest
            )
            written = model.generate(
                input_ids=read["input_ids"],
                attention_mask=read["attention_mask"],
                max_new_tokens=self.longest,
                do_sample=False,
            )
            done += tokenizer.batch_decode(written, skip_special_tokens=True)
        return done


def _all_but_blank(translate: Callable[[list[str]], list[str]], texts: list[str]) -> list[str]:
    """Translations of the texts that are not blank, and nothing for those that are."""
    said = [place for place, text in enumerate(texts) if text.strip()]
    done = [""] * len(texts)
    if said:
        for place, text in zip(said, translate([texts[place] for place in said]), strict=True):
            done[place] = text
    return done


@lru_cache(maxsize=2)  # there and back
def _loaded(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(
            name, trust_remote_code=False, use_safetensors=True
        )
    except Exception as error:  # anything from the network, the hub, the files or their tokenizer
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{name} is not a readable translation model: {reason}",
            remedy=(
                "Pass an encoder-decoder model with safetensors; Marian's tokenizers need `pip "
                "install sentencepiece`."
            ),
        ) from error
    return tokenizer, model.eval()
