"""Options that say where a service is, and how patient one is with it: of whatever API."""

from __future__ import annotations

from spark_connectors.options.declaring import TEXT, Option, whole

ENDPOINT = Option(
    "endpointUrl",
    TEXT,
    None,
    "Where the service is, such as `http://localhost:9324`.",
    ("endpoint",),
)
RETRIES = Option(
    "maxRetries",
    whole(0, 100),
    8,
    "How often a call, or an entry of a batch, that failed for a passing reason is repeated.",
)
