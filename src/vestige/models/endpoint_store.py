"""Replies and spending of one served model, so that no question is paid for twice.

A call is counted before it is sent, so that a killed one still counts against the budget. Replies
stay provisional until a control question confirms that the model behind the address is the same.
The file holds the queried texts and never a key.
"""

from collections.abc import Sequence
from pathlib import Path

from vestige.models.endpoint_wire import Question, Reply
from vestige.monitor import SILENT, Monitor
from vestige.store import Store

_SPENT = "spent"


class EndpointStore:
    """Replies of one server, for the threads of one process.

    Args:
        path: the file, made if it is missing.
        monitor: gets a line if replies are damaged, which are then asked for again.

    Raises:
        RunError: the file cannot be read or written, or its account is damaged.
    """

    def __init__(self, path: Path, monitor: Monitor = SILENT) -> None:
        self._store = Store(path, monitor=monitor, essential=_SPENT)
        self._about = self._store.part("about/")
        self._replies, self._provisional = self._store.part("answer/"), self._store.part("new/")
        self._store.setdefault(_SPENT, {"calls": 0, "tokens": 0, "failed_calls": 0, "seconds": 0.0})

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def about(self, name: str) -> str | None:
        """What was noted under a name."""
        return self._about.get(name)

    def note(self, name: str, value: str) -> None:
        """Note something about the server itself."""
        self._about[name] = value

    def reply(self, question: Question) -> Reply | None:
        """The reply to a question, if it was given before."""
        reply = self._replies.get(question.key) or self._provisional.get(question.key)
        return None if reply is None else Reply.from_json(reply)

    def sending(self, tokens: int) -> None:
        """Count a call before it is sent, as a failed one, with the tokens that it may take."""
        self._spend(calls=1, failed_calls=1, tokens=tokens)

    def ended(self, *, answered: bool, tokens: int, seconds: float) -> None:
        """Count how a call ended.

        Args:
            answered: whether it was answered.
            tokens: that it took, less those that it was counted with.
            seconds: that it took.
        """
        self._spend(failed_calls=-int(answered), tokens=tokens, seconds=seconds)

    def keep(self, questions: Sequence[Question], replies: Sequence[Reply]) -> None:
        """Keep the replies of one call, provisionally."""
        with self._store.transaction():
            for question, reply in zip(questions, replies, strict=True):
                self._provisional[question.key] = reply.to_json()

    def judge(self, same: bool) -> int:
        """Confirm the provisional replies, or delete them; how many there were."""
        with self._store.transaction():
            count = len(self._provisional)
            if same:
                self._replies.update(self._provisional)
            self._provisional.clear()
        return count

    def spent(self) -> tuple[int, int]:
        """Calls and tokens of all sessions."""
        account = self._store[_SPENT]
        return account["calls"], account["tokens"]

    def statistics(self) -> dict[str, float]:
        """Totals of all sessions: calls, tokens, failed calls and seconds that calls took."""
        kept = len(self._replies) + len(self._provisional)
        return {**self._store[_SPENT], "kept_answers": kept}

    def _spend(self, **numbers: float) -> None:
        with self._store.transaction():
            account = self._store[_SPENT]
            self._store[_SPENT] = {**account, **{k: account[k] + n for k, n in numbers.items()}}
