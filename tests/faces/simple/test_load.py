"""The scenarios of deploy/k6 in the form that needs no k6."""

from __future__ import annotations

from conformance import load
from tests.faces.clients import authorization, new_account
from tests.faces.servers import Server


def test_the_probes_and_a_short_load_find_nothing(server: Server) -> None:
    headers = {"Authorization": authorization(new_account(), "us-east-1", "sqs")}

    def connect() -> load.Caller:
        return load.Caller(server.url, headers)

    with connect() as caller:
        load.happy_path(caller)
        load.dead_letter(caller, server.advance)
        users = load.load(connect, lambda: range(1))
        assert caller.call("GET", "")["queues"] == []
    assert [user.failures for user in users] == [[]] * load.USERS
    assert sum(len(user.seconds) for user in users) == load.USERS * 3
