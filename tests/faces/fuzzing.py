"""Tools of the fuzz tests: values of any kind, requests that carry them, checks of every answer."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.faces.clients import Client, authorization
from tests.faces.connections import Answer, Connection, request_bytes
from tests.fuzz import drawing

FUZZ = drawing.few()
TEXT = st.text(max_size=20) | st.sampled_from(
    ["orders", "f.fifo", "All", "1", "-1", "\x00", "a" * 200, '{"a":1}', "true", "💥", "\ud800"]
)


def values(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Whatever JSON can say, with these texts in it."""
    numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=8,
    )


VALUES = values(TEXT)


def with_one_odd(
    likely: st.SearchStrategy[dict[str, Any]], own: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Likely members, or all but one of them, which may be anything of ``own``."""
    if not own:
        return likely
    odd = st.sampled_from(sorted(own)).flatmap(lambda name: st.tuples(st.just(name), own[name]))
    return likely | st.builds(lambda members, one: members | dict([one]), likely, odd)


def encoded(value: Any) -> Any:
    """Return the value with text in place of what JSON cannot hold."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {str(key): encoded(item) for key, item in value.items()}
    return [encoded(item) for item in value] if isinstance(value, list) else value


def flattened(value: Any, prefix: str = "") -> dict[str, str]:
    """Members as a form writes them, more or less."""
    if isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(str(number), item) for number, item in enumerate(value, 1)]
    else:
        return {prefix: str(value)}
    flat: dict[str, str] = {}
    for key, item in items:
        flat |= flattened(item, f"{prefix}.{key}" if prefix else key)
    return flat


def sns_json(action: str) -> dict[str, str]:
    """The headers of an action of SNS over JSON."""
    return {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSNS.{action}"}


def sns_form(value: Any, prefix: str) -> dict[str, str]:
    """A member as SNS's forms write it, more or less."""
    if isinstance(value, dict):
        form: dict[str, str] = {}
        for number, (key, item) in enumerate(value.items(), 1):
            form[f"{prefix}.entry.{number}.key"] = str(key)
            form |= sns_form(item, f"{prefix}.entry.{number}.value")
        return form
    if isinstance(value, list):
        return flattened(value, f"{prefix}.member")
    return {prefix: str(value)}


class FuzzTarget:
    """An account with something in it, and a connection that must survive everything."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.connection = Connection(client.url)
        self.headers = {
            "Host": self.connection.host,
            "Authorization": authorization(client.account, client.region, client.service),
        }

    def state(self) -> Any:
        """Return the state that a refused request must not change."""
        raise NotImplementedError

    def post(
        self, headers: dict[str, str], body: bytes, path: str = "/", method: str = "POST"
    ) -> Answer:
        self.connection.send(request_bytes(method, path, self.headers | headers, body))
        return self.connection.answer()

    def assert_sound(self, headers: dict[str, str], body: bytes, path: str = "/") -> None:
        """No answer of 500 and above, and a refusal changes nothing."""
        before = self.state()
        answer = self.post(headers, body, path)
        assert answer.status == 200 or 400 <= answer.status < 500, (headers, body[:1000], answer)
        assert answer.headers["x-amzn-requestid"]
        if answer.status >= 400:
            assert self.state() == before, (headers, body[:1000], answer)

    def close(self) -> None:
        self.connection.close()
        self.client.close()
