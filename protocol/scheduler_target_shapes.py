"""EventBridge Scheduler: the members of a target that belong to one kind of target, with their
rules (docs/contract/scheduler.md 4.2). A test compares them with the service model."""

from __future__ import annotations

from queuegate.protocol.constraints import Rule
from queuegate.protocol.shapes import BOOLEAN, List, Map, Scalar, Shape, Structure

RULES: dict[Shape, Rule] = {}
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
"""The services with a templated target beside SQS and SNS ("Using templated targets" in AWS's user
guide), by the name in their ARNs, and which parameters go with each."""

UNIVERSAL = "aws-sdk"
"""What the resource of a universal target's ARN begins with."""


def _text(
    least: int | None = None,
    most: int | None = None,
    pattern: str | None = None,
    values: tuple[str, ...] = (),
) -> Scalar:
    shape = Scalar("string")
    RULES[shape] = Rule(least, most, pattern, values)
    return shape


def _number(least: int, most: int) -> Scalar:
    shape = Scalar("integer")
    RULES[shape] = Rule(least, most)
    return shape


def _list(item: Shape, least: int, most: int) -> List:
    shape = List(item)
    RULES[shape] = Rule(least, most)
    return shape


def _structure(required: tuple[str, ...], **members: Shape) -> Structure:
    shape = Structure(members)
    RULES[shape] = Rule(required=required)
    return shape


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
RULES[_METADATA] = Rule(0, 100)

PARAMETERS: dict[str, Shape] = {
    "EcsParameters": _ECS,
    "EventBridgeParameters": _EVENT,
    "EventBridgePutEventsV2Parameters": _EVENT,
    "EventBridgePutRawEventsParameters": Structure({"Metadata": _METADATA}),
    "KinesisParameters": _structure(("PartitionKey",), PartitionKey=_text(1, 256)),
    "SageMakerPipelineParameters": Structure({"PipelineParameterList": _list(_STEP, 0, 200)}),
}
"""The members of a target that go with one kind of target only, but for SqsParameters."""
