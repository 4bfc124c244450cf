"""Public pages: the front page, the documentation, and certificates of SNS messages.

The front page is what a browser shows at ``/``, with the version, first steps and links. It has no
scripts and loads nothing from other hosts. Clients control some of its content, as the requested
host, so all values are escaped.

The documentation at /docs is the site that `make docs` builds, as files of the package.

Certificates verify signatures of SNS messages. They are public, because verifiers have no
credentials. Their names are those of AWS's certificates (docs/contract/sns.md 3.6); /v1/cert is the
name in docs/seeds.md 1.2.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Coroutine
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner

REQUEST = "queuegate.request"
"""Key of the face's ``Request`` in the scope of a page."""

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; }
main { max-width: 46rem; margin: 0 auto; padding: 2.5rem 1.25rem; }
h1 { margin: 0 0 1rem; font-size: 1.9rem; }
h1 small { font-size: 1rem; font-weight: normal; opacity: .65; }
h2 { margin: 2rem 0 .5rem; font-size: 1.1rem; }
p { margin: .5rem 0; }
pre { margin: .5rem 0; padding: .75rem 1rem; overflow-x: auto; border-radius: .4rem;
  background: #8882; font: .85rem/1.5 ui-monospace, monospace; user-select: all; }
code { font: .9em ui-monospace, monospace; }
ul { margin: .5rem 0; padding-left: 1.25rem; }
"""

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Queuegate at $endpoint</title>
<link rel="icon" href="data:,">
<style>$style</style>
</head>
<body>
<main>
<h1>Queuegate <small>$version</small></h1>
<p>The endpoint of SQS, SNS and EventBridge Scheduler for AWS's SDKs and tools. A click on a box
selects it.</p>
<pre id="endpoint">$endpoint</pre>
<h2>boto3</h2>
<pre>import boto3

at = dict(
    endpoint_url="$endpoint",
    region_name="$region",
    aws_access_key_id="$key",
    aws_secret_access_key="$secret",
)
sqs = boto3.client("sqs", **at)
url = sqs.create_queue(QueueName="hello")["QueueUrl"]
sqs.send_message(QueueUrl=url, MessageBody="Hello")
print(sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"])</pre>
<h2>aws CLI</h2>
<pre>export AWS_DEFAULT_REGION=$region AWS_ACCESS_KEY_ID=$key AWS_SECRET_ACCESS_KEY=$secret
aws --endpoint-url "$endpoint" sqs list-queues</pre>
<h2>Other SDKs</h2>
<pre>export AWS_ENDPOINT_URL_SQS="$endpoint" AWS_ENDPOINT_URL_SNS="$endpoint"
export AWS_ENDPOINT_URL_SCHEDULER="$endpoint" AWS_ENDPOINT_URL_STS="$endpoint"</pre>
<p>$credentials Web pages may ask
once <code>QUEUEGATE_ALLOWED_ORIGINS</code> has their origin.</p>
<h2>Here</h2>
<ul>
<li><a href="/console/">/console</a> shows queues, topics, logs and schedules</li>
<li><a href="/docs">/docs</a> is the documentation of this version</li>
<li><a href="/v1/openapi.json">/v1/openapi.json</a> describes the native API,
<a href="/api/openapi.json">/api/openapi.json</a> the simple queue,
<a href="/v1/channels/openapi.json">/v1/channels/openapi.json</a> channels;
<code>/queue</code> takes plain text</li>
$probes
</ul>
</main>
</body>
</html>
""")

_UNVERIFIED = {
    "key": "any",
    "secret": "any",
    "credentials": "Any credentials will do; an access key of 12 digits is an account of its own.",
}
_PROBES = """\
<li><a href="/readyz">/readyz</a> says whether requests can be served, and why not</li>
<li><a href="/metrics">/metrics</a> is for Prometheus</li>"""
_VERIFIED = {
    "key": "KEY",
    "secret": "SECRET",
    "credentials": "The key is one of this gateway: its administrators make them.",
}
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; style-src 'sha256-"
        f"{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

SITE = str(files("queuegate") / "_site")
_START = "index.html"
_NOT_BUILT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Queuegate: documentation</title>
<p>This checkout has no built documentation. Run <code>make docs</code>, then reload this page.
The same pages are Markdown files in the folder <code>docs/</code>.</p>
</html>
"""
_SITE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_PATIENCE_SECONDS = 5.0

_Page = Callable[[Request], Awaitable[Response]]


def front_route(settings: Settings) -> Route:
    """Return the route of the front page."""
    installed = version("queuegate")

    async def front(request: Request) -> Response:
        """Answer GET / of a browser (``page_paths.is_page``)."""
        endpoint = request.scope[REQUEST].base_url
        page = _PAGE.substitute(
            endpoint=escape(endpoint),
            region=escape(settings.region),
            version=escape(installed),
            style=_STYLE,
            probes="" if settings.operations_address else _PROBES,
            **(_VERIFIED if settings.auth == "sigv4" else _UNVERIFIED),
        )
        return HTMLResponse(page, headers=_HEADERS)

    return Route("/", front)


def documentation_routes(directory: str = SITE) -> list[Route]:
    """Return the routes of the site. Each request reads its file from the disk."""
    site = StaticFiles(directory=directory, check_dir=False)

    async def start(_: Request) -> Response:
        return RedirectResponse(f"/docs/{_START}", headers=_SITE_HEADERS)

    async def page(request: Request) -> Response:
        path = request.path_params["path"]
        try:
            answer = await site.get_response(path, request.scope)
        except (HTTPException, OSError, ValueError):
            # Older releases of Starlette raise the latter two for names that no file can have.
            if path == _START:
                return HTMLResponse(_NOT_BUILT, headers=_SITE_HEADERS)
            return PlainTextResponse("There is no such page. See /docs.\n", 404, _SITE_HEADERS)
        answer.headers.update(_SITE_HEADERS)
        return answer

    return [Route("/docs", start), Route("/docs/", start), Route("/docs/{path:path}", page)]


def certificate_routes(signer: EnvelopeSigner) -> list[Route]:
    """Return the routes of all certificates."""

    async def current(_: Request) -> Response:
        """Return the certificate of the current signing key. Create the key if none exists."""

        async def find() -> str:
            await signer.ready()
            return signer.certificate_pem

        return await _answer(find())

    async def named(request: Request) -> Response:
        """Return the certificate of the key with this fingerprint, current or former."""
        fingerprint = request.path_params["fingerprint"]
        if not _FINGERPRINT.fullmatch(fingerprint):
            return _not_found()
        return await _answer(signer.certificate(fingerprint))

    pages: dict[str, _Page] = {
        "/SimpleNotificationService-{fingerprint}.pem": named,
        "/SimpleNotificationService.pem": current,
        "/v1/cert": current,
    }
    return [Route(path, page) for path, page in pages.items()]


async def _answer(find: Coroutine[Any, Any, str | None]) -> Response:
    task = asyncio.create_task(find)
    # Do not cancel the task after the time limit: cancelling takes as long as the answer.
    await asyncio.wait([task], timeout=_PATIENCE_SECONDS)
    if not task.done():
        task.add_done_callback(_retrieve_error)
        return _not_now()
    try:
        certificate = task.result()
    except Unavailable:
        return _not_now()
    if certificate is None:
        return _not_found()
    return Response(certificate, media_type="application/x-pem-file")


def _retrieve_error(task: asyncio.Task[str | None]) -> None:
    """Retrieve the error of a late task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _not_found() -> Response:
    return PlainTextResponse("There is no such certificate.\n", 404)


def _not_now() -> Response:
    text = "The database is not available at the moment.\n"
    return PlainTextResponse(text, 503, {"retry-after": "1"})
