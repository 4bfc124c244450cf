import json
from datetime import UTC, datetime

import pytest

from queuegate.protocol import rest_json_wire
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.rest_json_wire import RestRoute
from queuegate.protocol.scheduler_shapes import ROUTES, SCHEDULER
from queuegate.protocol.shapes import INTEGER, STRING, TIMESTAMP, Action, List, Structure

PATHS = rest_json_wire.router(ROUTES)
ARN = "arn:aws:scheduler:us-east-1:123456789012:schedule-group/g"


@pytest.mark.parametrize(
    ("method", "path", "action", "label"),
    [
        ("POST", "/schedules/daily", "CreateSchedule", "daily"),
        ("PUT", "/schedules/daily", "UpdateSchedule", "daily"),
        ("GET", "/schedules/a%2Fb", "GetSchedule", "a%2Fb"),
        ("DELETE", "/schedules/..", "DeleteSchedule", ".."),
        ("GET", "/schedules", "ListSchedules", ""),
        ("POST", "/schedule-groups/g", "CreateScheduleGroup", "g"),
        ("GET", "/schedule-groups/g", "GetScheduleGroup", "g"),
        ("DELETE", "/schedule-groups/g", "DeleteScheduleGroup", "g"),
        ("GET", "/schedule-groups", "ListScheduleGroups", ""),
        ("POST", "/tags/arn%3Aaws%2Fg", "TagResource", "arn%3Aaws%2Fg"),
        ("DELETE", f"/tags/{ARN}", "UntagResource", ARN),
        ("GET", f"/tags/{ARN}", "ListTagsForResource", ARN),
    ],
)
def test_routes_by_the_raw_path(method: str, path: str, action: str, label: str) -> None:
    found = rest_json_wire.find(PATHS, method, path)
    assert found.route is not None
    assert (found.route.action, found.label) == (action, label)


@pytest.mark.parametrize(
    ("method", "path", "methods"),
    [
        ("PATCH", "/schedules/daily", ("POST", "PUT", "GET", "DELETE")),
        ("HEAD", "/schedules", ("GET",)),
        ("PUT", "/tags/x", ("POST", "GET", "DELETE")),
        ("GET", "/", ()),
        ("GET", "/schedules/", ()),
        ("GET", "/schedules/a/b", ()),
        ("GET", "/schedulesx", ()),
        ("GET", "/schedules/a%2Fb/c", ()),
        ("GET", "/Schedules", ()),
        ("GET", "/schedule-groups/a/b", ()),
        ("GET", "/%73chedules/a", ()),
        ("GET", "/tags/", ()),
        ("GET", "/tags", ()),
    ],
)
def test_what_is_no_route(method: str, path: str, methods: tuple[str, ...]) -> None:
    found = rest_json_wire.find(PATHS, method, path)
    assert found.route is None
    assert found.methods == methods


ACTION = Action(
    "Do",
    Structure(
        {
            "Name": STRING,
            "Group": STRING,
            "Most": INTEGER,
            "Keys": List(STRING),
            "When": TIMESTAMP,
            "Text": STRING,
        }
    ),
    Structure({"When": TIMESTAMP, "Text": STRING, "Keys": List(STRING)}),
)
QUERY = {"inGroup": "Group", "MostOf": "Most", "Keys": "Keys"}
POST = RestRoute("POST", "/things/", "Name", "Do", QUERY)


def _decode(path: str, query: bytes = b"", body: bytes = b"", method: str = "POST") -> object:
    route = RestRoute(method, POST.path, POST.label, POST.action, POST.query)
    found = rest_json_wire.find(rest_json_wire.router([route]), method, path)
    return rest_json_wire.decode(ACTION, found, query, body)


def test_members_of_path_query_and_body() -> None:
    body = json.dumps({"When": 1.5, "Text": "t", "Unknown": 1, "Name": "no", "Keys": ["no"]})
    found = _decode("/things/a%20b", b"inGroup=g%2Fh&MostOf=7&Keys=x&Keys=y+z&o=1", body.encode())
    assert found == {
        "Name": "a b",
        "Group": "g/h",
        "Most": 7,
        "Keys": ["x", "y z"],
        "When": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        "Text": "t",
    }


def test_spelling_of_parameters_counts_and_the_first_value_of_a_text() -> None:
    assert _decode("/things/a", b"Group=g&ingroup=g&mostOf=1") == {"Name": "a"}
    assert _decode("/things/a", b"inGroup=g&inGroup=h") == {"Name": "a", "Group": "g"}
    assert _decode("/things/a", b"&&inGroup&=x") == {"Name": "a", "Group": ""}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_body_that_has_no_meaning_is_not_read(method: str) -> None:
    assert _decode("/things/a", body=b"{", method=method) == {"Name": "a"}


@pytest.mark.parametrize(
    ("query", "body"),
    [
        (b"MostOf=x", b""),
        (b"MostOf=99999999999", b""),
        (b"inGroup=%ff", b""),
        (b"&" * 5000, b""),
        (b"", b"{"),
        (b"", b"[]"),
        (b"", b'{"Text": 1}'),
        (b"", b'{"When": "soon"}'),
        (b"", b'{"Text": "\xff"}'),
    ],
)
def test_what_cannot_be_decoded(query: bytes, body: bytes) -> None:
    with pytest.raises(Malformed):
        _decode("/things/a", query, body)


def test_a_path_that_is_not_utf8() -> None:
    with pytest.raises(Malformed):
        _decode("/things/%ff")


def test_results_are_objects_with_seconds() -> None:
    when = datetime(2026, 11, 21, 12, 0, 0, 250_000, UTC)
    result: dict[str, object] = {"When": when, "Text": None, "Keys": []}
    found = json.loads(rest_json_wire.encode(ACTION.output, result))
    assert found == {"When": when.timestamp(), "Keys": []}
    assert rest_json_wire.encode(SCHEDULER.actions["DeleteSchedule"].output, {}) == b"{}"
    assert rest_json_wire.encode(None, {}) == b"{}"
