"""EventBridge Scheduler: every action with its input, output, route and rules
(docs/contract/scheduler.md 4.1 and 4.2).

Member names are those of the service model. A test compares all of it with the model. Parameters
of targets that are neither queues nor topics are in scheduler_target_shapes.py.
"""

from queuegate.protocol import scheduler_target_shapes
from queuegate.protocol.constraints import Rule
from queuegate.protocol.rest_json_wire import Route
from queuegate.protocol.shapes import (
    STRING,
    TIMESTAMP,
    Action,
    List,
    Scalar,
    Service,
    Shape,
    Structure,
)

_Members = dict[str, Shape]

_NAME_PATTERN = "[0-9a-zA-Z-_.]+"
_GROUP_ARN_PATTERN = r"arn:aws[a-z-]*:scheduler:[a-z0-9\-]+:\d{12}:schedule-group\/[0-9a-zA-Z-_.]+"


def _text() -> Scalar:
    """A text of its own, to hang a rule on."""
    return Scalar("string")


def _number() -> Scalar:
    return Scalar("integer")


_NAME = _text()
_TOKEN = _text()
_NEXT_TOKEN = _text()
_MOST_RESULTS = _number()
_EXPRESSION = _text()
_TIMEZONE = _text()
_DESCRIPTION = _text()
_STATE = _text()
_GROUP_STATE = _text()
_COMPLETION = _text()
_KEY_ARN = _text()
_TARGET_ARN = _text()
_ROLE_ARN = _text()
_INPUT = _text()
_DEAD_LETTER_ARN = _text()
_MESSAGE_GROUP = _text()
_EVENT_AGE = _number()
_RETRIES = _number()
_WINDOW_MODE = _text()
_WINDOW_MINUTES = _number()
_TAG_KEY = _text()
_TAG_VALUE = _text()
_RESOURCE = _text()

_WINDOW = Structure({"Mode": _WINDOW_MODE, "MaximumWindowInMinutes": _WINDOW_MINUTES})
_TARGET = Structure(
    {
        "Arn": _TARGET_ARN,
        "RoleArn": _ROLE_ARN,
        "DeadLetterConfig": Structure({"Arn": _DEAD_LETTER_ARN}),
        "RetryPolicy": Structure(
            {"MaximumEventAgeInSeconds": _EVENT_AGE, "MaximumRetryAttempts": _RETRIES}
        ),
        "Input": _INPUT,
        **scheduler_target_shapes.PARAMETERS,
        "SqsParameters": Structure({"MessageGroupId": _MESSAGE_GROUP}),
    }
)
_TAG = Structure({"Key": _TAG_KEY, "Value": _TAG_VALUE})
_TAGS = List(_TAG)
_TAG_KEYS = List(_TAG_KEY)

_SCHEDULE: _Members = {
    "Name": _NAME,
    "GroupName": _NAME,
    "ScheduleExpression": _EXPRESSION,
    "StartDate": TIMESTAMP,
    "EndDate": TIMESTAMP,
    "Description": _DESCRIPTION,
    "ScheduleExpressionTimezone": _TIMEZONE,
    "State": _STATE,
    "KmsKeyArn": _KEY_ARN,
    "Target": _TARGET,
    "FlexibleTimeWindow": _WINDOW,
    "ActionAfterCompletion": _COMPLETION,
}
_DATES: _Members = {"CreationDate": TIMESTAMP, "LastModificationDate": TIMESTAMP}
_GROUP: _Members = {"Arn": STRING, "Name": _NAME, "State": _GROUP_STATE, **_DATES}
_SUMMARY: _Members = {
    "Arn": STRING,
    "Name": _NAME,
    "GroupName": _NAME,
    "State": _STATE,
    **_DATES,
    "Target": Structure({"Arn": _TARGET_ARN}),
}
_PAGE: _Members = {"NextToken": _NEXT_TOKEN, "MaxResults": _MOST_RESULTS}
_ONE: _Members = {"Name": _NAME, "ClientToken": _TOKEN}
_OF_RESOURCE: _Members = {"ResourceArn": _RESOURCE}

_ACTIONS = (
    Action(
        "CreateSchedule",
        Structure({**_SCHEDULE, "ClientToken": _TOKEN}),
        Structure({"ScheduleArn": STRING}),
    ),
    Action(
        "CreateScheduleGroup",
        Structure({**_ONE, "Tags": _TAGS}),
        Structure({"ScheduleGroupArn": STRING}),
    ),
    Action("DeleteSchedule", Structure({**_ONE, "GroupName": _NAME}), Structure({})),
    Action("DeleteScheduleGroup", Structure(_ONE), Structure({})),
    Action(
        "GetSchedule",
        Structure({"Name": _NAME, "GroupName": _NAME}),
        Structure({"Arn": STRING, **_SCHEDULE, **_DATES}),
    ),
    Action("GetScheduleGroup", Structure({"Name": _NAME}), Structure(_GROUP)),
    Action(
        "ListScheduleGroups",
        Structure({"NamePrefix": _NAME, **_PAGE}),
        Structure({"NextToken": _NEXT_TOKEN, "ScheduleGroups": List(Structure(_GROUP))}),
    ),
    Action(
        "ListSchedules",
        Structure({"GroupName": _NAME, "NamePrefix": _NAME, "State": _STATE, **_PAGE}),
        Structure({"NextToken": _NEXT_TOKEN, "Schedules": List(Structure(_SUMMARY))}),
    ),
    Action("ListTagsForResource", Structure(_OF_RESOURCE), Structure({"Tags": _TAGS})),
    Action("TagResource", Structure({**_OF_RESOURCE, "Tags": _TAGS}), Structure({})),
    Action("UntagResource", Structure({**_OF_RESOURCE, "TagKeys": _TAG_KEYS}), Structure({})),
    Action(
        "UpdateSchedule",
        Structure({**_SCHEDULE, "ClientToken": _TOKEN}),
        Structure({"ScheduleArn": STRING}),
    ),
)

SCHEDULER = Service(
    name="scheduler",
    versions=("2021-06-30",),
    # It speaks rest-json and nothing else: it has neither targets nor XML.
    target_prefix=None,
    json_version=None,
    xml_namespace="",
    xml_prolog="",
    xml_error_detail=False,
    actions={action.name: action for action in _ACTIONS},
)

_PAGE_QUERY = {name: name for name in ("NamePrefix", "NextToken", "MaxResults")}
_IDEMPOTENT = {"clientToken": "ClientToken"}
_IN_GROUP = {"groupName": "GroupName"}

ROUTES = (
    Route("POST", "/schedules/", "Name", "CreateSchedule"),
    Route("PUT", "/schedules/", "Name", "UpdateSchedule"),
    Route("GET", "/schedules/", "Name", "GetSchedule", _IN_GROUP),
    Route("DELETE", "/schedules/", "Name", "DeleteSchedule", {**_IN_GROUP, **_IDEMPOTENT}),
    Route(
        "GET",
        "/schedules",
        None,
        "ListSchedules",
        {"ScheduleGroup": "GroupName", "State": "State", **_PAGE_QUERY},
    ),
    Route("POST", "/schedule-groups/", "Name", "CreateScheduleGroup"),
    Route("GET", "/schedule-groups/", "Name", "GetScheduleGroup"),
    Route("DELETE", "/schedule-groups/", "Name", "DeleteScheduleGroup", _IDEMPOTENT),
    Route("GET", "/schedule-groups", None, "ListScheduleGroups", _PAGE_QUERY),
    Route("POST", "/tags/", "ResourceArn", "TagResource"),
    Route("GET", "/tags/", "ResourceArn", "ListTagsForResource"),
    Route("DELETE", "/tags/", "ResourceArn", "UntagResource", {"TagKeys": "TagKeys"}),
)

_REQUIRED_OF_SCHEDULE = ("Name", "ScheduleExpression", "Target", "FlexibleTimeWindow")
_REQUIRED: dict[str, tuple[str, ...]] = {
    "CreateSchedule": _REQUIRED_OF_SCHEDULE,
    "CreateScheduleGroup": ("Name",),
    "DeleteSchedule": ("Name",),
    "DeleteScheduleGroup": ("Name",),
    "GetSchedule": ("Name",),
    "GetScheduleGroup": ("Name",),
    "ListTagsForResource": ("ResourceArn",),
    "TagResource": ("ResourceArn", "Tags"),
    "UntagResource": ("ResourceArn", "TagKeys"),
    "UpdateSchedule": _REQUIRED_OF_SCHEDULE,
}

RULES: dict[Shape, Rule] = {
    **scheduler_target_shapes.RULES,
    **{SCHEDULER.actions[name].input: Rule(required=names) for name, names in _REQUIRED.items()},
    _NAME: Rule(1, 64, _NAME_PATTERN),
    _TOKEN: Rule(1, 64, "[a-zA-Z0-9-_]+"),
    _NEXT_TOKEN: Rule(1, 2048),
    _MOST_RESULTS: Rule(1, 100),
    _EXPRESSION: Rule(1, 256),
    _TIMEZONE: Rule(1, 50),
    _DESCRIPTION: Rule(0, 512),
    _STATE: Rule(values=("ENABLED", "DISABLED")),
    _GROUP_STATE: Rule(values=("ACTIVE", "DELETING")),
    _COMPLETION: Rule(values=("NONE", "DELETE")),
    _KEY_ARN: Rule(1, 2048, r"arn:aws[a-z-]*:kms:[a-z0-9\-]+:\d{12}:(key|alias)\/[0-9a-zA-Z-_]*"),
    _TARGET: Rule(required=("Arn", "RoleArn")),
    _TARGET_ARN: Rule(1, 1600),
    _ROLE_ARN: Rule(1, 1600, r"arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@\/-]+"),
    _INPUT: Rule(least=1),
    # No dot: the dead-letter queue of a schedule cannot be a FIFO queue.
    _DEAD_LETTER_ARN: Rule(1, 1600, r"arn:aws[a-z-]*:sqs:[a-z0-9\-]+:\d{12}:[a-zA-Z0-9\-_]+"),
    _MESSAGE_GROUP: Rule(1, 128),
    _EVENT_AGE: Rule(60, 86_400),
    _RETRIES: Rule(0, 185),
    _WINDOW: Rule(required=("Mode",)),
    _WINDOW_MODE: Rule(values=("OFF", "FLEXIBLE")),
    _WINDOW_MINUTES: Rule(1, 1440),
    _TAG: Rule(required=("Key", "Value")),
    _TAG_KEY: Rule(1, 128),
    _TAG_VALUE: Rule(1, 256),
    _TAGS: Rule(0, 200),
    _TAG_KEYS: Rule(0, 200),
    _RESOURCE: Rule(1, 1011, _GROUP_ARN_PATTERN),
}
"""The rules of the model, by shape."""
