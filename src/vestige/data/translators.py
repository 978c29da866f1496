"""The command `apertium` as a translator, for `obfuscation.back_translated`."""

import subprocess
from dataclasses import dataclass

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
        given = [" ".join(text.split()) for text in texts]
        written = [text for text in given if text]
        translated = iter(self._lines(written) if written else [])
        return [next(translated) if text else "" for text in given]

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
