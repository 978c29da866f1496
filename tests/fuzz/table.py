"""What became of many cases, as a table."""

from collections import Counter, defaultdict

from tests.fuzz.cases import Tried
from tests.fuzz.oracles import KINDS, Complaint

MIB = 2**20


class Table:
    """Counts by verb and by what the cases were about, and one case for each cause."""

    def __init__(self) -> None:
        self._cases: Counter[str] = Counter()
        self._kinds: dict[str, Counter[str]] = defaultdict(Counter)
        self._codes: dict[str, Counter[str]] = defaultdict(Counter)
        self._cpu: dict[str, float] = defaultdict(float)
        self._memory: dict[str, int] = defaultdict(int)
        self._causes: dict[tuple[str, str], list[tuple[Tried, Complaint]]] = defaultdict(list)

    def add(self, tried: Tried, found: list[Complaint]) -> list[Complaint]:
        """Count a case, and return what has not been found before."""
        fresh = [each for each in found if (each.kind, each.key) not in self._causes]
        outcome = tried.outcome
        code = "working" if outcome.late else str(outcome.code)
        for row in (tried.case.verb, tried.case.about, "all"):
            self._cases[row] += 1
            self._codes[row][code] += 1
            self._kinds[row].update(complaint.kind for complaint in found)
            self._cpu[row] = max(self._cpu[row], outcome.cpu)
            self._memory[row] = max(self._memory[row], outcome.memory)
        for complaint in found:
            same = self._causes[complaint.kind, complaint.key]
            same.append((tried, complaint))
            same.sort(key=lambda each: len(" ".join(each[0].case.words)))
        return fresh

    def text(self) -> str:
        """The table, and the shortest case of every cause."""
        seen = [kind for kind in KINDS if self._kinds["all"][kind] or kind in KINDS[:3]]
        head = ["what", "cases", "done", "refused", "working", *KINDS, "CPU s", "MiB"]
        lines = [" | ".join(head), " | ".join("---" for _ in head)]
        for row, cases in self._cases.items():
            codes = self._codes[row]
            counts = [cases, codes["0"], codes["2"], codes["working"]]
            counts += [self._kinds[row][kind] for kind in KINDS]
            ends = [f"{self._cpu[row]:.1f}", f"{self._memory[row] / MIB:.0f}"]
            lines.append(" | ".join([row, *map(str, counts), *ends]))
        assert seen
        for (kind, key), same in sorted(self._causes.items()):
            tried, complaint = same[0]
            lines += ["", f"## {kind} | {key} | {len(same)} times", "", complaint.text[-1500:]]
            lines += ["", tried.case.written()[:3000]]
        return "\n".join(lines).encode("utf-8", "backslashreplace").decode()
