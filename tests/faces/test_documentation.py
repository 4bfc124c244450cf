"""The documentation at /docs: files of a built site, and nothing beside them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from starlette.routing import Router

from queuegate.gateway.faces.interface import Request
from queuegate.gateway.pages.operator_pages import PageFace
from queuegate.gateway.pages.public_pages import documentation_routes
from tests.cli.processes import run
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.servers import Server

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
BESIDE = (
    "../__main__.py",
    "%2e%2e/__main__.py",
    "..%2f__main__.py",
    "%2e%2e%2f__main__.py",
    "..%5c__main__.py",
    "a/../../__main__.py",
    "./../__main__.py",
    "//etc/passwd",
    "%2fetc%2fpasswd",
    "%00",
    "index.html%00",
    "%ff%fe",
    "x" * 5_000,
    "assets",
    "",
)
"""Paths below /docs/ that name no file of the site."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A built site, beside a file and a link that lead out of it."""
    (tmp_path / "__main__.py").write_text("secret")
    built = tmp_path / "_site"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<h1>Start</h1>")
    (built / "assets" / "style.css").write_text("h1 { margin: 0 }")
    (built / "link").symlink_to(tmp_path / "__main__.py")
    return built


def client(directory: Path) -> httpx.AsyncClient:
    app = Router(documentation_routes(str(directory)))
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost:9324"
    )


async def test_files_of_the_site_are_served(site: Path) -> None:
    async with client(site) as reader:
        for path in ("/docs", "/docs/"):
            moved = await reader.get(path)
            assert (moved.status_code, moved.headers["location"]) == (307, "/docs/index.html")
        page = await reader.get("/docs/index.html")
        assert (page.status_code, page.text) == (200, "<h1>Start</h1>")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        style = await reader.get("/docs/assets/style.css")
        assert style.headers["content-type"] == "text/css; charset=utf-8"
        head = await reader.head("/docs/index.html")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == page.headers["content-length"]


async def test_pages_run_no_script_of_anybody_else(site: Path) -> None:
    async with client(site) as reader:
        for path, status in (("index.html", 200), ("assets/style.css", 200), ("no", 404)):
            answer = await reader.get(f"/docs/{path}")
            assert answer.status_code == status
            policy = answer.headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "script-src 'self'", "style-src 'self'"} < {*policy}
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_browser_gets_a_changed_page_only(site: Path) -> None:
    async with client(site) as reader:
        page = await reader.get("/docs/index.html")
        known = {"if-none-match": page.headers["etag"]}
        assert (await reader.get("/docs/index.html", headers=known)).status_code == 304
        (site / "index.html").write_text("<h1>Another start</h1>")
        again = await reader.get("/docs/index.html", headers=known)
        assert (again.status_code, again.text) == (200, "<h1>Another start</h1>")


async def test_the_face_of_pages_has_the_length_of_a_page_and_no_more(site: Path) -> None:
    face = PageFace(documentation_routes(str(site)))
    request = Request("HEAD", "/docs/index.html", b"", {}, b"", "", "", "1")
    page = await face.answer(request)
    assert (page.status, page.body) == (200, b"<h1>Start</h1>")
    assert b"content-length" not in dict(page.headers)
    request.raw_headers = [(b"if-none-match", dict(page.headers)[b"etag"])]
    unchanged = await face.answer(request)
    assert (unchanged.status, unchanged.body) == (304, b"")


async def test_a_checkout_without_the_site_says_how_to_build_it(tmp_path: Path) -> None:
    async with client(tmp_path / "_site") as reader:
        page = await reader.get("/docs", follow_redirects=True)
        assert page.status_code == 200
        assert "<code>make docs</code>" in page.text
        assert (await reader.get("/docs/assets/style.css")).status_code == 404


@pytest.mark.parametrize("path", [*BESIDE, "link"])
async def test_no_other_file_is_served(site: Path, path: str) -> None:
    async with client(site) as reader:
        answer = await reader.get(f"/docs/{path}", follow_redirects=path != "")
        assert answer.status_code == (307 if path == "" else 404), answer.text
        assert "secret" not in answer.text


@pytest.mark.parametrize("path", BESIDE)
def test_a_gateway_serves_none_either(server: Server, path: str) -> None:
    answer = fetch(server.url, f"/docs/{path}")
    assert answer.status in (307, 400, 404), answer.text
    assert "queuegate" not in answer.text


def test_a_gateway_serves_the_documentation_to_everybody(server: Server) -> None:
    assert fetch(server.url, "/docs").headers["location"] == "/docs/index.html"
    page = fetch(server.url, "/docs/index.html")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Queuegate" in page.text
    assert fetch(server.url, "/docs/index.html", "POST").status == 405
    with Connection(server.url) as connection:
        stranger = {"Host": connection.host, "X-Forwarded-For": "203.0.113.9"}
        connection.send(request_bytes("GET", "/docs/index.html", stranger))
        assert connection.answer().status == 200
    sample = 'http_requests_total{method="GET",path="/docs",status="200"}'
    before = server.metric(sample)
    fetch(server.url, "/docs/index.html")
    # Counted once the file is closed, which is after the answer.
    server.until(sample, before + 1)


def test_the_page_of_metrics_has_each_of_them(server: Server) -> None:
    page = (REFERENCE / "metrics.md").read_text("utf-8")
    shown = fetch(server.url, "/metrics?names=new").text
    names = re.findall(r"^# TYPE (\S+)", shown, re.MULTILINE)
    assert len(names) > 50
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_page_of_commands_has_each_of_them() -> None:
    page = (REFERENCE / "cli.md").read_text("utf-8")
    shown = run("--help").stdout.partition("positional arguments:")[2].partition("options:")[0]
    commands = re.findall(r"^    (\w+)", shown, re.MULTILINE)
    assert {"serve", "log", "config"} < {*commands}
    assert [name for name in commands if f"`queuegate {name}`" not in page] == []
