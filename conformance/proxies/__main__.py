"""`python -m conformance.proxies`: what a rule of a proxy in front forbids stays forbidden.

nginx and HAProxy refuse PurgeQueue and the pages below `/_admin`, and pass on what WebSockets need.
Requests that hide a purge from them, in a body, in trailers or behind two lengths, must leave the
queue as it is. A proxy that is not installed is skipped, with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from conformance.serving import DidNotStart, gateway
from tests.ports import reserved_port

_SECONDS = 30.0

_NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      if ($http_x_amz_target ~ PurgeQueue) {{ return 403; }}
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_request_buffering off;
      proxy_pass http://{upstream};
    }}
    location /_admin/ {{ return 403; }}
  }}
}}
"""
_HAPROXY = """
defaults
  mode http
  timeout connect 10s
  timeout client 10s
  timeout server 10s
frontend front
  bind 127.0.0.1:{port}
  acl is_purge req.hdr(x-amz-target) -m sub PurgeQueue
  acl is_admin path -m beg /_admin/
  http-request deny if is_purge || is_admin
  default_backend back
backend back
  server gateway {upstream}
"""


@dataclass(frozen=True)
class Proxy:
    """A program, its configuration, and how it is started with it."""

    name: str
    configuration: str
    command: Callable[[str, Path], list[str]]


PROXIES = (
    Proxy("nginx", _NGINX, lambda program, folder: [program, "-p", str(folder), "-c", "conf"]),
    Proxy("haproxy", _HAPROXY, lambda program, folder: [program, "-f", str(folder / "conf"), "-q"]),
)


class Wire:
    """Requests of one account, by hand."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._host = parts.netloc
        self.queue = ""

    def ask(self, action: str, **members: object) -> dict[str, object]:
        """The result of an action of SQS."""
        body = json.dumps(members).encode()
        answer = self.send(self.request(action, f"Content-Length: {len(body)}") + body)
        found: dict[str, object] = json.loads(answer.partition(b"\r\n\r\n")[2] or b"{}")
        return found

    def request(self, action: str, *lines: str, path: str = "/") -> bytes:
        """The head of a request."""
        head = (
            f"POST {path} HTTP/1.1",
            f"Host: {self._host}",
            f"X-Amz-Target: AmazonSQS.{action}",
            "Content-Type: application/x-amz-json-1.0",
            "Authorization: any",
            *lines,
        )
        return "\r\n".join(head).encode() + b"\r\n\r\n"

    def send(self, *pieces: bytes, between: Callable[[], object] = bool) -> bytes:
        """All that is answered on one connection until nothing more comes for a second."""
        answer = b""
        with socket.create_connection(self._address, _SECONDS) as connection:
            for piece in pieces:
                connection.sendall(piece)
                between()
            with contextlib.suppress(TimeoutError, ConnectionError):
                while data := connection.recv(65_536):
                    answer += data
                    connection.settimeout(1.0)
        return answer


def _attempts(wire: Wire) -> Iterator[tuple[str, bytes, bytes]]:
    """(what it tries, bytes, bytes that are sent a moment later): each hides a purge or the clock
    from the proxy."""
    body = json.dumps({"QueueUrl": wire.queue}).encode()
    purge = wire.request("PurgeQueue", f"Content-Length: {len(body)}") + body
    for protocol in ("websocket", "h2c"):
        upgrade = ("Connection: Upgrade", f"Upgrade: {protocol}")
        head = wire.request("ListQueues", *upgrade, f"Content-Length: {len(purge)}")
        yield f"a purge in the body of a request that offers {protocol}", head, purge
    chunked = wire.request("GetQueueAttributes", "Transfer-Encoding: chunked")
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    trailer = b"X-Amz-Target: AmazonSQS.PurgeQueue\r\n\r\n"
    yield "a purge by a trailer", chunked + chunks + trailer, b""
    length = f"Content-Length: {len(chunks) + 2}"
    for name, lines in {
        "a length and chunks": (length, "Transfer-Encoding: chunked"),
        "chunks in disguise": (length, "Transfer-Encoding : chunked"),
        "chunks behind a tab": (length, "Transfer-Encoding:\tchunked"),
        "another coding": ("Transfer-Encoding: xchunked", length),
        "two lengths": ("Content-Length: 0", f"Content-Length: {len(purge)}"),
    }.items():
        head = wire.request("ListQueues", *lines)
        yield f"a purge behind {name}", head + b"0\r\n\r\n" + purge, b""
    for size in (b"0_0", b"0x0", b" 0", b"0;\n"):
        head = wire.request("ListQueues", "Transfer-Encoding: chunked")
        yield f"a purge behind a chunk of {size!r}", head + size + b"\r\n\r\n" + purge, b""
    for path in ("/%5fadmin/clock", "/%5Fadmin/clock", "//_admin/clock", "/./_admin/clock"):
        move = b'{"advance_seconds": 86400}'
        head = wire.request("ListQueues", f"Content-Length: {len(move)}", path=path)
        yield f"the clock at {path}", head + move, b""


def _check(name: str, direct: Wire, through: Wire) -> int:
    """Return the number of attempts with a wrong result."""
    direct.queue = str(direct.ask("CreateQueue", QueueName=f"behind-{name}")["QueueUrl"])
    through.queue = direct.queue
    direct.ask("SendMessage", QueueUrl=direct.queue, MessageBody="kept")
    failures = 0
    if "MessageId" not in through.ask("SendMessage", QueueUrl=direct.queue, MessageBody="kept"):
        print(f"{name:8} FAILED: nothing gets through")
        return 1
    for attempt, data, later in _attempts(through):
        before = _clock(direct)
        through.send(data, later, between=lambda: _clock(direct))
        told = direct.ask("GetQueueAttributes", QueueUrl=direct.queue, AttributeNames=["All"])
        attributes = told["Attributes"]
        assert isinstance(attributes, dict)
        is_kept = attributes["ApproximateNumberOfMessages"] == "2" and _clock(direct) == before
        if not is_kept:
            failures += 1
            direct.ask("PurgeQueue", QueueUrl=direct.queue)
            for _ in range(2):
                direct.ask("SendMessage", QueueUrl=direct.queue, MessageBody="kept")
        print(f"{name:8} {attempt:60} {'ok' if is_kept else 'FAILED'}", flush=True)
    return failures


def _clock(wire: Wire) -> object:
    answer = wire.send(
        b"GET /_admin/clock HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    return json.loads(answer.partition(b"\r\n\r\n")[2])["ahead_seconds"]


@contextlib.contextmanager
def _running(proxy: Proxy, program: str, upstream: str) -> Iterator[str]:
    """The URL of the proxy in front of a gateway."""
    with reserved_port() as port, tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        conf = proxy.configuration.format(port=port, upstream=upstream, folder=folder)
        (folder / "conf").write_text(conf)
        process = subprocess.Popen(proxy.command(program, folder), stdin=subprocess.DEVNULL)
        try:
            _wait_until_it_listens(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    raise DidNotStart(f"the proxy does not listen (exit code {process.poll()})")


def main() -> int:
    """0 when no attempt worked through any proxy that is there."""
    failures = 0
    try:
        with gateway(os.environ) as endpoint:
            for proxy in PROXIES:
                program = shutil.which(proxy.name) or shutil.which(proxy.name, path="/usr/sbin")
                if program is None:
                    print(f"{proxy.name:8} skipped: it is not installed")
                    continue
                with _running(proxy, program, urlsplit(endpoint).netloc) as url:
                    failures += _check(proxy.name, Wire(endpoint), Wire(url))
    except DidNotStart as error:
        print(f"proxies: {error}", file=sys.stderr)
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
