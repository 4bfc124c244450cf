"""A client of the text face: parameters in, headers and text out."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from tests.faces.connections import Answer
from tests.faces.rest.client import Rest


class Taken(NamedTuple):
    """A message as it was received."""

    payload: str
    receipt_id: str
    message_id: str
    timestamp: int


class Text(Rest):
    """One account of a gateway."""

    def text(self, method: str, payload: str = "", /, **given: object) -> Answer:
        """The bare answer; ``group_id`` is the parameter group-id."""
        named = {name.replace("_", "-"): value for name, value in given.items()}
        query = f"?{urlencode(named)}" if named else ""
        return self.ask(method, f"/queue{query}", raw=payload.encode())

    def post(self, payload: str, group_id: str = "g", **given: object) -> str | None:
        """The id of a new message; None of a duplicate."""
        answer = self.text("POST", payload, group_id=group_id, **given)
        assert answer.status in (200, 204), answer.text
        assert (answer.status == 200) == ("message-id" in answer.headers)
        return answer.headers.get("message-id")

    def get(self, **given: object) -> Taken | None:
        """The next message; None: there is none."""
        answer = self.text("GET", **given)
        if answer.status == 204:
            return None
        assert answer.status == 200, answer.text
        facts = answer.headers
        return Taken(
            answer.text,
            facts["message-receipt-id"],
            facts["message-id"],
            int(facts["message-timestamp"]),
        )

    def taken(self, **given: object) -> Taken:
        """The next message, which is there."""
        found = self.get(**given)
        assert found is not None
        return found

    def delete(self, message: Taken, **given: object) -> bool:
        """Return True if the message was deleted."""
        answer = self.text("DELETE", receipt_id=message.receipt_id, **given)
        return self._was_done(answer, message)

    def patch(self, message: Taken, seconds: int, **given: object) -> bool:
        """Return True if the timeout was changed."""
        options = {"receipt_id": message.receipt_id, "visibility_timeout": seconds}
        return self._was_done(self.text("PATCH", **options, **given), message)

    @staticmethod
    def _was_done(answer: Answer, message: Taken) -> bool:
        if answer.status == 200:
            assert answer.headers["message-id"] == message.message_id
            return True
        assert (answer.status, answer.headers.get("message-id")) == (204, None), answer.text
        return False

    def refused(self, method: str, payload: str = "", /, **given: object) -> str:
        """The line of a refusal with 422."""
        return one_line(self.text(method, payload, **given))


def one_line(answer: Answer, status: int = 422) -> str:
    """The text of a refusal with that status."""
    assert answer.status == status, (answer.status, answer.text)
    assert answer.headers["content-type"] == "text/plain"
    assert answer.text.endswith("\n")
    assert answer.text.count("\n") == 1
    return answer.text.rstrip("\n")
