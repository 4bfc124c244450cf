"""EventBridge Scheduler: every action with its input, output, route and rules
(docs/contract/scheduler.md 4.1 and 4.2).

Member names are those of the service model. A test compares everything with the model. The first
part has the members of targets that are neither queues nor topics.
"""

from __future__ import annotations

from queuegate.protocol.rest_json_wire import RestRoute
from queuegate.protocol.shapes import (
    BOOLEAN,
    STRING,
    TIMESTAMP,
    Action,
    Constraint,
    List,
    Map,
    Scalar,
    ServiceModel,
    Shape,
    Structure,
)

TARGET_RULES: dict[Shape, Constraint] = {}
"""By shape."""

SERVICES = {
    "codebuild": (),
    "codepipeline": (),
    "ecs": ("EcsParameters",),
    "events": (
        "EventBridgeParameters",
        "EventBridgePutEventsV2Parameters",
        "EventBridgePutRawEventsParameters",
    ),
    "firehose": (),
    "inspector": (),
    "kinesis": ("KinesisParameters",),
    "lambda": (),
    "sagemaker": ("SageMakerPipelineParameters",),
    "states": (),
}
"""Services with a templated target beside SQS and SNS ("Using templated targets" in AWS's user
guide), by the name in their ARNs, with their parameters."""

UNIVERSAL = "aws-sdk"
"""Prefix of the resource in a universal target's ARN."""


def _ruled_text(
    least: int | None = None,
    most: int | None = None,
    pattern: str | None = None,
    values: tuple[str, ...] = (),
) -> Scalar:
    shape = Scalar("string")
    TARGET_RULES[shape] = Constraint(least, most, pattern, values)
    return shape


def _ruled_number(least: int, most: int) -> Scalar:
    shape = Scalar("integer")
    TARGET_RULES[shape] = Constraint(least, most)
    return shape


def _list(item: Shape, least: int, most: int) -> List:
    shape = List(item)
    TARGET_RULES[shape] = Constraint(least, most)
    return shape


def _structure(required: tuple[str, ...], **members: Shape) -> Structure:
    shape = Structure(members)
    TARGET_RULES[shape] = Constraint(required=required)
    return shape


_PLACE = _ruled_text(1, 1000)
_NETWORK = _structure(
    ("Subnets",),
    Subnets=_list(_PLACE, 1, 16),
    SecurityGroups=_list(_PLACE, 1, 5),
    AssignPublicIp=_ruled_text(values=("ENABLED", "DISABLED")),
)
_CAPACITY = _structure(
    ("capacityProvider",),
    capacityProvider=_ruled_text(1, 255),
    weight=_ruled_number(0, 1000),
    base=_ruled_number(0, 100_000),
)
_CONSTRAINT = _structure(
    (), type=_ruled_text(values=("distinctInstance", "memberOf")), expression=_ruled_text(0, 2000)
)
_STRATEGY = _structure(
    (), type=_ruled_text(values=("random", "spread", "binpack")), field=_ruled_text(0, 255)
)
_ECS = _structure(
    ("TaskDefinitionArn",),
    TaskDefinitionArn=_ruled_text(1, 1600),
    TaskCount=_ruled_number(1, 10),
    LaunchType=_ruled_text(values=("EC2", "FARGATE", "EXTERNAL")),
    NetworkConfiguration=_structure((), awsvpcConfiguration=_NETWORK),
    PlatformVersion=_ruled_text(1, 64),
    Group=_ruled_text(1, 255),
    CapacityProviderStrategy=_list(_CAPACITY, 0, 6),
    EnableECSManagedTags=BOOLEAN,
    EnableExecuteCommand=BOOLEAN,
    PlacementConstraints=_list(_CONSTRAINT, 0, 10),
    PlacementStrategy=_list(_STRATEGY, 0, 5),
    PropagateTags=_ruled_text(values=("TASK_DEFINITION",)),
    ReferenceId=_ruled_text(0, 1024),
    Tags=_list(Map(_ruled_text(1, 256)), 0, 50),
)
_SOURCE = r"(?=[/\.\-_A-Za-z0-9]+)((?!aws\.).*)|(\$(\.[\w_-]+(\[(\d+|\*)\])*)*)"
_EVENT = _structure(
    ("DetailType", "Source"), DetailType=_ruled_text(1, 128), Source=_ruled_text(1, 256, _SOURCE)
)
_STEP = _structure(
    ("Name", "Value"), Name=_ruled_text(1, 256, r"[A-Za-z0-9\-_]*"), Value=_ruled_text(1, 1024)
)

_METADATA = Map(_ruled_text(least=1))
TARGET_RULES[_METADATA] = Constraint(0, 100)

PARAMETERS: dict[str, Shape] = {
    "EcsParameters": _ECS,
    "EventBridgeParameters": _EVENT,
    "EventBridgePutEventsV2Parameters": _EVENT,
    "EventBridgePutRawEventsParameters": Structure({"Metadata": _METADATA}),
    "KinesisParameters": _structure(("PartitionKey",), PartitionKey=_ruled_text(1, 256)),
    "SageMakerPipelineParameters": Structure({"PipelineParameterList": _list(_STEP, 0, 200)}),
}
"""Members of a target for one kind of target, without SqsParameters."""


_Members = dict[str, Shape]

_NAME_PATTERN = "[0-9a-zA-Z-_.]+"
_GROUP_ARN_PATTERN = r"arn:aws[a-z-]*:scheduler:[a-z0-9\-]+:\d{12}:schedule-group\/[0-9a-zA-Z-_.]+"


def _text() -> Scalar:
    """Return a new text shape for a rule of its own."""
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
        **PARAMETERS,
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

SCHEDULER = ServiceModel(
    name="scheduler",
    versions=("2021-06-30",),
    # Its only wire is rest-json, without targets and XML.
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
    RestRoute("POST", "/schedules/", "Name", "CreateSchedule"),
    RestRoute("PUT", "/schedules/", "Name", "UpdateSchedule"),
    RestRoute("GET", "/schedules/", "Name", "GetSchedule", _IN_GROUP),
    RestRoute("DELETE", "/schedules/", "Name", "DeleteSchedule", {**_IN_GROUP, **_IDEMPOTENT}),
    RestRoute(
        "GET",
        "/schedules",
        None,
        "ListSchedules",
        {"ScheduleGroup": "GroupName", "State": "State", **_PAGE_QUERY},
    ),
    RestRoute("POST", "/schedule-groups/", "Name", "CreateScheduleGroup"),
    RestRoute("GET", "/schedule-groups/", "Name", "GetScheduleGroup"),
    RestRoute("DELETE", "/schedule-groups/", "Name", "DeleteScheduleGroup", _IDEMPOTENT),
    RestRoute("GET", "/schedule-groups", None, "ListScheduleGroups", _PAGE_QUERY),
    RestRoute("POST", "/tags/", "ResourceArn", "TagResource"),
    RestRoute("GET", "/tags/", "ResourceArn", "ListTagsForResource"),
    RestRoute("DELETE", "/tags/", "ResourceArn", "UntagResource", {"TagKeys": "TagKeys"}),
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

RULES: dict[Shape, Constraint] = {
    **TARGET_RULES,
    **{
        SCHEDULER.actions[name].input: Constraint(required=names)
        for name, names in _REQUIRED.items()
    },
    _NAME: Constraint(1, 64, _NAME_PATTERN),
    _TOKEN: Constraint(1, 64, "[a-zA-Z0-9-_]+"),
    _NEXT_TOKEN: Constraint(1, 2048),
    _MOST_RESULTS: Constraint(1, 100),
    _EXPRESSION: Constraint(1, 256),
    _TIMEZONE: Constraint(1, 50),
    _DESCRIPTION: Constraint(0, 512),
    _STATE: Constraint(values=("ENABLED", "DISABLED")),
    _GROUP_STATE: Constraint(values=("ACTIVE", "DELETING")),
    _COMPLETION: Constraint(values=("NONE", "DELETE")),
    _KEY_ARN: Constraint(
        1, 2048, r"arn:aws[a-z-]*:kms:[a-z0-9\-]+:\d{12}:(key|alias)\/[0-9a-zA-Z-_]*"
    ),
    _TARGET: Constraint(required=("Arn", "RoleArn")),
    _TARGET_ARN: Constraint(1, 1600),
    _ROLE_ARN: Constraint(1, 1600, r"arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@\/-]+"),
    _INPUT: Constraint(least=1),
    # Without a dot: the dead-letter queue of a schedule cannot be a FIFO queue.
    _DEAD_LETTER_ARN: Constraint(1, 1600, r"arn:aws[a-z-]*:sqs:[a-z0-9\-]+:\d{12}:[a-zA-Z0-9\-_]+"),
    _MESSAGE_GROUP: Constraint(1, 128),
    _EVENT_AGE: Constraint(60, 86_400),
    _RETRIES: Constraint(0, 185),
    _WINDOW: Constraint(required=("Mode",)),
    _WINDOW_MODE: Constraint(values=("OFF", "FLEXIBLE")),
    _WINDOW_MINUTES: Constraint(1, 1440),
    _TAG: Constraint(required=("Key", "Value")),
    _TAG_KEY: Constraint(1, 128),
    _TAG_VALUE: Constraint(1, 256),
    _TAGS: Constraint(0, 200),
    _TAG_KEYS: Constraint(0, 200),
    _RESOURCE: Constraint(1, 1011, _GROUP_ARN_PATTERN),
}
"""The rules of the model, by shape."""
