"""The page at /, which only browsers get."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from importlib.metadata import version

import pytest

from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.servers import Server

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
BASE = "http://a&b<i>'\""
BROWSER = {"Accept": ACCEPT, "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate",
           "Sec-Fetch-Dest": "document", "Upgrade-Insecure-Requests": "1"}  # fmt: skip


def look(server: Server, target: str = "/", method: str = "GET", **headers: str) -> Answer:
    """The answer to a browser that does not say more than it must."""
    return ask(server, method, target, {"Accept": ACCEPT} | headers)


def ask(server: Server, method: str, target: str, headers: Mapping[str, str]) -> Answer:
    with Connection(server.url) as connection:
        own = {"Host": connection.host} | dict(headers)
        connection.send(request_bytes(method, target, own))
        return connection.answer(to_head=method == "HEAD")


class Seen(HTMLParser):
    """The links, the boxes and the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.boxes: list[str] = []
        self.tags: set[str] = set()
        self._is_in_box = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "a":
            self.links.append(dict(attrs)["href"] or "")
        if tag == "pre":
            self._is_in_box = True
            self.boxes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_in_box = self._is_in_box and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._is_in_box:
            self.boxes[-1] += data


def test_a_browser_sees_how_to_use_this(server: Server) -> None:
    answer = ask(server, "GET", "/", BROWSER)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert version("queuegate") in answer.text
    seen = Seen(answer.text)
    assert seen.boxes[0] == server.url
    assert f'endpoint_url="{server.url}"' in seen.boxes[1]
    assert f'aws --endpoint-url "{server.url}"' in seen.boxes[2]
    for link in seen.links:
        answer = fetch(server.url, link)
        assert fetch(server.url, answer.headers.get("location", link)).status == 200
    assert {"/docs", "/v1/openapi.json", "/metrics", "/readyz"} < {*seen.links}


def test_the_example_of_the_page_works(server: Server) -> None:
    printed: list[str] = []
    exec(Seen(look(server).text).boxes[1], {"print": printed.append})
    assert printed == ["Hello"]


def test_nothing_on_the_page_comes_from_elsewhere(server: Server) -> None:
    answer = look(server)
    style = re.search(r"<style>(.*)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'none'", f"style-src 'sha256-{digest}'"} < {
        *policy
    }
    assert Seen(answer.text).tags.isdisjoint({"script", "img", "iframe", "form", "object"})
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_endpoint_is_the_one_that_was_asked(server: Server) -> None:
    for headers, endpoint in (
        ({"Host": "sqs.us-east-1.localhost:1"}, "http://sqs.us-east-1.localhost:1"),
        ({"Host": "localhost", "X-Forwarded-Proto": "https"}, "http://localhost"),
        ({"X-Forwarded-Proto": "<script>"}, server.url),
    ):
        assert Seen(look(server, **headers).text).boxes[0] == endpoint


def test_the_base_url_is_the_endpoint_and_is_escaped() -> None:
    settings = {"QUEUEGATE_BASE_URL": BASE, "QUEUEGATE_REGION": "eu-north-1"}
    with Server(**settings) as server, Connection(server.listens_at) as connection:
        headers = {"Host": connection.host, "Accept": ACCEPT}
        connection.send(request_bytes("GET", "/", headers))
        answer = connection.answer()
    seen = Seen(answer.text)
    assert seen.boxes[0] == BASE
    assert "i" not in seen.tags
    assert 'region_name="eu-north-1"' in seen.boxes[1]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_links_to_the_page_may_be_followed(server: Server, method: str) -> None:
    link = BROWSER | {"Sec-Fetch-Site": "cross-site"}
    answer = ask(server, method, "/", link)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for other in (
        {"Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Mode": "no-cors"},
        {"Origin": "https://evil.example"},
        {"Host": "evil.example"},
    ):
        assert ask(server, method, "/", link | other).status == 403


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/?Action=ListQueues", {}),
        ("GET", "/?X-Amz-Algorithm=AWS4-HMAC-SHA256", {}),
        ("GET", "/", {"Authorization": "any"}),
        ("GET", "/", {"Accept": "*/*"}),
        ("GET", "/", {"Accept": "application/json"}),
        ("POST", "/", {}),
        ("PUT", "/", {}),
        ("OPTIONS", "/", {}),
        ("GET", "//", {}),
        ("GET", "/000000000000/q", {}),
    ],
)
def test_clients_of_aws_get_the_answers_of_aws(
    server: Server, method: str, target: str, headers: dict[str, str]
) -> None:
    answer = look(server, target, method, **headers)
    assert answer.status in (400, 403, 404, 405)
    assert not answer.headers["content-type"].startswith("text/html")
    assert "x-amzn-requestid" in answer.headers


def test_the_page_is_counted_like_what_it_replaces(server: Server) -> None:
    sample = 'http_requests_total{method="GET",path="/",status="200"}'
    before = server.metric(sample)
    look(server)
    assert server.metric(sample) == before + 1
