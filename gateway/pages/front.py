"""The front page: what a browser shows at ``/``, with the version, first steps and links.

The page has no scripts and loads nothing from other hosts. Clients control some of its content, as
the requested host, so all values are escaped.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.metadata import version
from string import Template
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from queuegate.gateway.faces.interface import REQUEST

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

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


def front_route(settings: Settings) -> Route:
    """Return the route of the front page."""
    installed = version("queuegate")

    async def front(request: Request) -> Response:
        """Answer GET / of a browser (``paths.is_page``)."""
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
