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
    Members,
    Scalar,
    ServiceModel,
    Shape,
    Structure,
    action,
)

RULES: dict[Shape, Constraint] = {}
"""The rules of the model, by shape."""

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


def _text(
    least: int | None = None,
    most: int | None = None,
    pattern: str | None = None,
    values: tuple[str, ...] = (),
) -> Scalar:
    """Return a new text shape with a rule of its own."""
    shape = Scalar("string")
    RULES[shape] = Constraint(least, most, pattern, values)
    return shape


def _number(least: int, most: int) -> Scalar:
    shape = Scalar("integer")
    RULES[shape] = Constraint(least, most)
    return shape


def _list(item: Shape, least: int, most: int) -> List:
    shape = List(item)
    RULES[shape] = Constraint(least, most)
    return shape


def _structure(required: tuple[str, ...], **members: Shape) -> Structure:
    shape = Structure(members)
    RULES[shape] = Constraint(required=required)
    return shape


def _action(
    name: str, members: Members, output: Members, required: tuple[str, ...] = ()
) -> tuple[str, Action]:
    found = action(name, members, output)
    RULES[found[1].input] = Constraint(required=required)
    return found


_PLACE = _text(1, 1000)
_NETWORK = _structure(
    ("Subnets",),
    Subnets=_list(_PLACE, 1, 16),
    SecurityGroups=_list(_PLACE, 1, 5),
    AssignPublicIp=_text(values=("ENABLED", "DISABLED")),
)
_CAPACITY = _structure(
    ("capacityProvider",),
    capacityProvider=_text(1, 255),
    weight=_number(0, 1000),
    base=_number(0, 100_000),
)
_CONSTRAINT = _structure(
    (), type=_text(values=("distinctInstance", "memberOf")), expression=_text(0, 2000)
)
_STRATEGY = _structure((), type=_text(values=("random", "spread", "binpack")), field=_text(0, 255))
_ECS = _structure(
    ("TaskDefinitionArn",),
    TaskDefinitionArn=_text(1, 1600),
    TaskCount=_number(1, 10),
    LaunchType=_text(values=("EC2", "FARGATE", "EXTERNAL")),
    NetworkConfiguration=_structure((), awsvpcConfiguration=_NETWORK),
    PlatformVersion=_text(1, 64),
    Group=_text(1, 255),
    CapacityProviderStrategy=_list(_CAPACITY, 0, 6),
    EnableECSManagedTags=BOOLEAN,
    EnableExecuteCommand=BOOLEAN,
    PlacementConstraints=_list(_CONSTRAINT, 0, 10),
    PlacementStrategy=_list(_STRATEGY, 0, 5),
    PropagateTags=_text(values=("TASK_DEFINITION",)),
    ReferenceId=_text(0, 1024),
    Tags=_list(Map(_text(1, 256)), 0, 50),
)
_SOURCE = r"(?=[/\.\-_A-Za-z0-9]+)((?!aws\.).*)|(\$(\.[\w_-]+(\[(\d+|\*)\])*)*)"
_EVENT = _structure(
    ("DetailType", "Source"), DetailType=_text(1, 128), Source=_text(1, 256, _SOURCE)
)
_STEP = _structure(("Name", "Value"), Name=_text(1, 256, r"[A-Za-z0-9\-_]*"), Value=_text(1, 1024))

_METADATA = Map(_text(least=1))
RULES[_METADATA] = Constraint(0, 100)

PARAMETERS: dict[str, Shape] = {
    "EcsParameters": _ECS,
    "EventBridgeParameters": _EVENT,
    "EventBridgePutEventsV2Parameters": _EVENT,
    "EventBridgePutRawEventsParameters": Structure({"Metadata": _METADATA}),
    "KinesisParameters": _structure(("PartitionKey",), PartitionKey=_text(1, 256)),
    "SageMakerPipelineParameters": Structure({"PipelineParameterList": _list(_STEP, 0, 200)}),
}
"""Members of a target for one kind of target, without SqsParameters."""


_NAME = _text(1, 64, "[0-9a-zA-Z-_.]+")
_TOKEN = _text(1, 64, "[a-zA-Z0-9-_]+")
_NEXT_TOKEN = _text(1, 2048)
_STATE = _text(values=("ENABLED", "DISABLED"))
_TARGET_ARN = _text(1, 1600)
_TAG_KEY = _text(1, 128)
_TAGS = _list(_structure(("Key", "Value"), Key=_TAG_KEY, Value=_text(1, 256)), 0, 200)
# Without a dot: the dead-letter queue of a schedule cannot be a FIFO queue.
_DEAD_LETTER_ARN = _text(1, 1600, r"arn:aws[a-z-]*:sqs:[a-z0-9\-]+:\d{12}:[a-zA-Z0-9\-_]+")
_TARGET = _structure(
    ("Arn", "RoleArn"),
    Arn=_TARGET_ARN,
    RoleArn=_text(1, 1600, r"arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@\/-]+"),
    DeadLetterConfig=Structure({"Arn": _DEAD_LETTER_ARN}),
    RetryPolicy=Structure(
        {"MaximumEventAgeInSeconds": _number(60, 86_400), "MaximumRetryAttempts": _number(0, 185)}
    ),
    Input=_text(1),
    **PARAMETERS,
    SqsParameters=Structure({"MessageGroupId": _text(1, 128)}),
)
_WINDOW = _structure(
    ("Mode",), Mode=_text(values=("OFF", "FLEXIBLE")), MaximumWindowInMinutes=_number(1, 1440)
)

_SCHEDULE: Members = {
    "Name": _NAME,
    "GroupName": _NAME,
    "ScheduleExpression": _text(1, 256),
    "StartDate": TIMESTAMP,
    "EndDate": TIMESTAMP,
    "Description": _text(0, 512),
    "ScheduleExpressionTimezone": _text(1, 50),
    "State": _STATE,
    "KmsKeyArn": _text(
        1, 2048, r"arn:aws[a-z-]*:kms:[a-z0-9\-]+:\d{12}:(key|alias)\/[0-9a-zA-Z-_]*"
    ),
    "Target": _TARGET,
    "FlexibleTimeWindow": _WINDOW,
    "ActionAfterCompletion": _text(values=("NONE", "DELETE")),
}
_DATES: Members = {"CreationDate": TIMESTAMP, "LastModificationDate": TIMESTAMP}
_GROUP: Members = {
    "Arn": STRING,
    "Name": _NAME,
    "State": _text(values=("ACTIVE", "DELETING")),
    **_DATES,
}
_SUMMARY: Members = {
    "Arn": STRING,
    "Name": _NAME,
    "GroupName": _NAME,
    "State": _STATE,
    **_DATES,
    "Target": Structure({"Arn": _TARGET_ARN}),
}
_PAGE: Members = {"NextToken": _NEXT_TOKEN, "MaxResults": _number(1, 100)}
_ONE: Members = {"Name": _NAME, "ClientToken": _TOKEN}
_OF_RESOURCE: Members = {
    "ResourceArn": _text(
        1, 1011, r"arn:aws[a-z-]*:scheduler:[a-z0-9\-]+:\d{12}:schedule-group\/[0-9a-zA-Z-_.]+"
    )
}
_NEEDED = ("Name", "ScheduleExpression", "Target", "FlexibleTimeWindow")

_ACTIONS = (
    _action(
        "CreateSchedule", {**_SCHEDULE, "ClientToken": _TOKEN}, {"ScheduleArn": STRING}, _NEEDED
    ),
    _action(
        "CreateScheduleGroup", {**_ONE, "Tags": _TAGS}, {"ScheduleGroupArn": STRING}, ("Name",)
    ),
    _action("DeleteSchedule", {**_ONE, "GroupName": _NAME}, {}, ("Name",)),
    _action("DeleteScheduleGroup", _ONE, {}, ("Name",)),
    _action(
        "GetSchedule",
        {"Name": _NAME, "GroupName": _NAME},
        {"Arn": STRING, **_SCHEDULE, **_DATES},
        ("Name",),
    ),
    _action("GetScheduleGroup", {"Name": _NAME}, _GROUP, ("Name",)),
    _action(
        "ListScheduleGroups",
        {"NamePrefix": _NAME, **_PAGE},
        {"NextToken": _NEXT_TOKEN, "ScheduleGroups": List(Structure(_GROUP))},
    ),
    _action(
        "ListSchedules",
        {"GroupName": _NAME, "NamePrefix": _NAME, "State": _STATE, **_PAGE},
        {"NextToken": _NEXT_TOKEN, "Schedules": List(Structure(_SUMMARY))},
    ),
    _action("ListTagsForResource", _OF_RESOURCE, {"Tags": _TAGS}, ("ResourceArn",)),
    _action("TagResource", {**_OF_RESOURCE, "Tags": _TAGS}, {}, ("ResourceArn", "Tags")),
    _action(
        "UntagResource",
        {**_OF_RESOURCE, "TagKeys": _list(_TAG_KEY, 0, 200)},
        {},
        ("ResourceArn", "TagKeys"),
    ),
    _action(
        "UpdateSchedule", {**_SCHEDULE, "ClientToken": _TOKEN}, {"ScheduleArn": STRING}, _NEEDED
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
    actions=dict(_ACTIONS),
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
