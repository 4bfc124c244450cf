"""The native API while its database does not answer."""

from __future__ import annotations

import json

from storage.embedded import EmbeddedPostgres
from tests import clusters
from tests.cli.processes import Gateway
from tests.faces.rest.client import ABSENT, Rest

CALLS = (
    ("POST", "/v1/queues", {"name": "more"}),
    ("GET", "/v1/queues", ABSENT),
    ("GET", "/v1/queues/jobs", ABSENT),
    ("POST", "/v1/queues/jobs/messages", {"message": 1}),
    ("GET", "/v1/queues/jobs/messages?wait=20", ABSENT),
    ("DELETE", "/v1/queues/jobs/messages/1", ABSENT),
    ("PATCH", "/v1/queues/jobs/messages/1", {"vt": 0}),
)


def test_postgresql_unavailable_mid_flight() -> None:
    """The row of that name in docs/seeds.md 1.5: 500 there, here we say that it may go better."""
    postgres = EmbeddedPostgres(ephemeral=True)
    clusters.copy_into(postgres)
    postgres.start()
    postgres.wait_ready()
    try:
        settings = {"DATABASE_URL": postgres.dsn, "QUEUEGATE_LOG_LEVEL": "error"}
        with Gateway(**settings) as gateway, Rest(gateway.url) as rest:
            rest.create("jobs")
            postgres.stop()
            for method, path, body in CALLS:
                answer = rest.ask(method, path, body)
                assert answer.status == 503, (method, path, answer.text)
                assert answer.headers["retry-after"] == "1"
                assert json.loads(answer.body)["error"].endswith("Try again in a moment.")
            assert rest.ask("GET", "/v1/openapi.json").status == 200
    finally:
        postgres.stop()
