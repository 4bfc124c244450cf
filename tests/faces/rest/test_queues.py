"""Queues of the native API: created, listed, looked at, purged, deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.servers import Background, Server

SHOWN = {"is_partitioned": False, "is_unlogged": False, "archive": False, "archive_days": None}


def test_a_queue_is_created_and_told_where_it_is(rest: Rest) -> None:
    answer = rest.ask("POST", "/v1/queues", {"name": "jobs"})
    assert (answer.status, answer.headers["location"]) == (201, "/v1/queues/jobs")
    [listed] = rest.call("GET", "/v1/queues")
    created_at = listed.pop("created_at")
    assert listed == SHOWN | {"name": "jobs", "fifo": False}
    assert datetime.fromisoformat(created_at).tzinfo is not None


def test_creating_it_again_changes_nothing(rest: Rest) -> None:
    new = {"name": "jobs", "archive": True, "archive_days": 3}
    first = rest.call("POST", "/v1/queues", new, status=201)
    assert first["archive"] is True
    assert first["archive_days"] == 3
    assert rest.call("POST", "/v1/queues", new, status=201) == first
    assert rest.call("POST", "/v1/queues", {"name": "jobs"}, status=201) == first


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ({"archive": True}, {"archive": False}, "archive"),
        ({}, {"archive": True}, "archive"),
        ({"archive": True}, {"archive": True, "archive_days": 3}, "archive_days"),
        ({"archive_days": 3}, {"archive_days": 4}, "archive_days"),
    ],
)
def test_creating_it_again_otherwise_is_refused(
    rest: Rest, before: dict[str, object], after: dict[str, object], differs: str
) -> None:
    rest.create("jobs", **before)
    text = rest.refusal("POST", "/v1/queues", {"name": "jobs"} | after, status=409)
    assert text.endswith(differs)


def test_days_mean_an_archive(rest: Rest) -> None:
    rest.create("jobs", archive_days=3)
    assert rest.call("GET", "/v1/queues/jobs")["archive"] is True


def test_many_creators_get_one_queue(rest: Rest) -> None:
    new = {"name": "jobs", "archive": True}
    calls = [Background(rest.call, "POST", "/v1/queues", new, status=201) for _ in range(8)]
    assert len({call.result()["created_at"] for call in calls}) == 1


@pytest.mark.parametrize(
    ("new", "name", "is_fifo"),
    [
        ({"name": "jobs", "fifo": True}, "jobs.fifo", True),
        ({"name": "jobs.fifo", "fifo": True}, "jobs.fifo", True),
        ({"name": "jobs.fifo"}, "jobs.fifo", True),
        ({"name": "j" * 80}, "j" * 80, False),
        ({"name": "j" * 75, "fifo": True}, "j" * 75 + ".fifo", True),
    ],
)
def test_fifo_queues_have_the_suffix(
    rest: Rest, new: dict[str, object], name: str, is_fifo: bool
) -> None:
    created = rest.call("POST", "/v1/queues", new, status=201)
    assert (created["name"], created["fifo"]) == (name, is_fifo)


def test_a_fifo_queue_is_found_without_its_suffix(rest: Rest) -> None:
    rest.create("jobs", fifo=True)
    assert rest.call("GET", "/v1/queues/jobs")["name"] == "jobs.fifo"
    rest.create("jobs")
    assert rest.call("GET", "/v1/queues/jobs")["name"] == "jobs"
    assert rest.call("GET", "/v1/queues/jobs.fifo")["name"] == "jobs.fifo"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({"name": "a b"}, "'a b'"),
        ({"name": ""}, "''"),
        ({"name": "j" * 81}, "at most 80"),
        ({"name": "j" * 76, "fifo": True}, "at most 75"),
        ({"name": "jobs\n"}, "cannot be called"),
        ({"name": "jobs", "archive_days": 0}, "`archive_days` is refused: allowed is 1 to 3650."),
        ({"name": "jobs", "fifo": "yes"}, "`fifo` is refused: expected true or false"),
        ({"name": "jobs", "ttl": 3}, "`ttl` is not known. Known are `name`, `fifo`, `archive`"),
        ({}, "`name` is missing"),
        (["jobs"], "The body is refused: expected an object"),
    ],
)
def test_bad_queues_are_refused_and_not_created(rest: Rest, new: object, expected: str) -> None:
    assert expected in rest.refusal("POST", "/v1/queues", new)
    assert rest.call("GET", "/v1/queues") == []


def test_queues_of_other_accounts_and_regions_are_others(rest: Rest) -> None:
    rest.create("jobs")
    for other in (Rest(rest.url), Rest(rest.url, rest.account, "eu-west-1")):
        with other:
            assert other.call("GET", "/v1/queues") == []
            text = other.refusal("GET", "/v1/queues/jobs", status=404)
            assert text == "Queue 'jobs' does not exist"


def test_listing_goes_page_by_page(rest: Rest) -> None:
    names = ["a", "b1", "b2", "b3", "c"]
    for name in reversed(names):
        rest.create(name)
    assert [one["name"] for one in rest.call("GET", "/v1/queues")] == names
    found = []
    path = "/v1/queues?name_prefix=b&limit=2"
    while path:
        answer = rest.ask("GET", path)
        found.append([one["name"] for one in rest.call("GET", path)])
        path = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert found == [["b1", "b2"], ["b3"]]
    assert [one["name"] for one in rest.call("GET", "/v1/queues?after=b2")] == ["b3", "c"]


def test_a_list_has_the_metrics_of_each_queue_on_demand(rest: Rest) -> None:
    for name in ("jobs", "mails"):
        rest.create(name)
        rest.call("POST", f"/v1/queues/{name}/messages", {"message": name}, status=201)
    assert not any("metrics" in one for one in rest.call("GET", "/v1/queues?metrics=false"))
    answer = rest.ask("GET", "/v1/queues?metrics=true&limit=1")
    assert "/v1/queues?limit=1&after=jobs&metrics=true" in answer.headers["link"]
    for listed in rest.call("GET", "/v1/queues?metrics=true"):
        single = rest.call("GET", f"/v1/queues/{listed['name']}")
        single["scrape_time"] = listed["metrics"]["scrape_time"]
        for age in ("newest_msg_age_sec", "oldest_msg_age_sec"):
            assert single.pop(age) >= listed["metrics"].pop(age)
        assert single == listed["metrics"]
        assert single["queue_length"] == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("metrics=1", "`metrics` is '1': true or false is expected"),
        ("limit=0", "`limit` is refused: allowed is 1 to 1000."),
        ("limit=ten", "`limit` is 'ten': a whole number is expected."),
        ("limit=1&limit=2", "`limit` is there twice"),
        (
            "prefix=a",
            "`prefix` is not known. Known are `limit`, `after`, `name_prefix`, `metrics`.",
        ),
        ("after=%00", "NUL"),
        ("after=%ff", "UTF-8"),
    ],
)
def test_bad_parameters_of_a_listing(rest: Rest, query: str, expected: str) -> None:
    assert expected in rest.refusal("GET", f"/v1/queues?{query}")


@pytest.mark.parametrize("fifo", [False, True])
def test_the_numbers_of_a_queue(rest: Rest, server: Server, fifo: bool) -> None:
    name = rest.create("jobs", fifo=fifo)
    group = {"group_id": "g"} if fifo else {}
    empty = rest.call("GET", f"/v1/queues/{name}")
    assert (empty["oldest_msg_age_sec"], empty["newest_msg_age_sec"]) == (None, None)
    for _ in range(3):
        rest.send(name, **group)
    server.advance(100)
    rest.send(name, **group)
    [received] = rest.receive(name, max=1)
    rest.call("DELETE", f"/v1/queues/{name}/messages/{received['id']}", status=204)
    rest.receive(name, max=1)
    found = rest.call("GET", f"/v1/queues/{name}")
    assert (found["queue_length"], found["queue_visible_length"]) == (3, 2)
    assert found["total_messages"] == 4
    assert 100 <= found["oldest_msg_age_sec"] < 160
    assert 0 <= found["newest_msg_age_sec"] < 60
    now = datetime.fromisoformat(server.now()).astimezone(UTC)
    assert abs(datetime.fromisoformat(found["scrape_time"]) - now) < timedelta(seconds=60)
    assert found["fifo"] is fifo


@pytest.mark.parametrize("fifo", [False, True])
def test_purging_counts_and_has_no_minute_to_wait(rest: Rest, fifo: bool) -> None:
    name = rest.create("jobs", fifo=fifo)
    path = f"/v1/queues/{name}"
    sent = [
        {"message": number} | ({"group_id": str(number % 3)} if fifo else {"delay": number % 2})
        for number in range(40)
    ]
    for _ in range(2):
        rest.call("POST", f"{path}/messages", sent, status=201)
        rest.receive(name, max=7)
        assert rest.call("POST", f"{path}/purge") == {"deleted": 40}
        assert rest.call("POST", f"{path}/purge") == {"deleted": 0}
    assert rest.call("GET", path)["queue_length"] == 0


def test_a_deleted_queue_is_gone_and_its_name_free(rest: Rest) -> None:
    rest.create("jobs")
    rest.send("jobs")
    rest.call("DELETE", "/v1/queues/jobs", status=204)
    rest.refusal("DELETE", "/v1/queues/jobs", status=404)
    rest.refusal("POST", "/v1/queues/jobs/messages", {"message": 1}, status=404)
    rest.create("jobs")
    assert rest.receive("jobs") == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/purge"),
        ("GET", "/messages"),
        ("DELETE", "/messages/1"),
    ],
)
@pytest.mark.parametrize("name", ["nope", "no.pe", "a%20b", "j" * 81, "%2E%2E", "%E2%98%83"])
def test_a_queue_that_is_not_there(rest: Rest, method: str, path: str, name: str) -> None:
    text = rest.refusal(method, f"/v1/queues/{name}{path}", status=404)
    assert text.startswith("Queue '")
    assert text.endswith("' does not exist")


def test_sqs_sees_the_same_queues(rest: Rest, sqs_beside: Sqs) -> None:
    rest.create("jobs")
    rest.create("orders", fifo=True)
    urls = sqs_beside.call("ListQueues")["QueueUrls"]
    assert [url.rpartition("/")[2] for url in urls] == ["jobs", "orders.fifo"]
    sqs_beside.create("theirs", VisibilityTimeout="77")
    assert rest.create("theirs") == "theirs"
    assert rest.call("GET", "/v1/queues/theirs")["queue_length"] == 0


def test_a_receive_that_waits_learns_that_the_queue_is_deleted(rest: Rest, server: Server) -> None:
    rest.create("jobs")
    path = "/v1/queues/jobs/messages?wait=20"
    poll = Background(rest.refusal, "GET", path, status=404)
    server.until_parked()
    rest.call("DELETE", "/v1/queues/jobs", status=204)
    assert poll.result() == "Queue 'jobs' does not exist"
