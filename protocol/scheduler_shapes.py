"""EventBridge Scheduler: every action with its input, output, route and rules
(docs/contract/scheduler.md 4.1 and 4.2).

Member names are those of the service model. A test compares everything with the model.
"""

from __future__ import annotations

from queuegate.protocol.rest_json_wire import RestRoute
from queuegate.protocol.shapes import ModelText, ServiceModel

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


_MODEL = ModelText(r"""
# Members of targets that are neither queues nor topics.
Place = (1..1000)
Network: Subnets!:[Place](1..16) SecurityGroups:[Place](1..5) AssignPublicIp:<ENABLED,DISABLED>
Capacity: capacityProvider!:(1..255) weight:int(0..1000) base:int(0..100000)
PlacementConstraint: type:<distinctInstance,memberOf> expression:(0..2000)
PlacementStrategy: type:<random,spread,binpack> field:(0..255)
NetworkConfiguration: awsvpcConfiguration:Network
EcsTag = {(1..256)}
Ecs: TaskDefinitionArn!:(1..1600) TaskCount:int(1..10) LaunchType:<EC2,FARGATE,EXTERNAL>
    NetworkConfiguration:NetworkConfiguration PlatformVersion:(1..64) Group:(1..255)
    CapacityProviderStrategy:[Capacity](0..6) EnableECSManagedTags:bool EnableExecuteCommand:bool
    PlacementConstraints:[PlacementConstraint](0..10) PlacementStrategy:[PlacementStrategy](0..5)
    PropagateTags:<TASK_DEFINITION> ReferenceId:(0..1024) Tags:[EcsTag](0..50)
Event: DetailType!:(1..128)
    Source!:(1..256~(?=[/\.\-_A-Za-z0-9]+)((?!aws\.).*)|(\$(\.[\w_-]+(\[(\d+|\*)\])*)*))
RawEvents: Metadata:{(1..)}(0..100)
Kinesis: PartitionKey!:(1..256)
Step: Name!:(1..256~[A-Za-z0-9\-_]*) Value!:(1..1024)
SageMaker: PipelineParameterList:[Step](0..200)
Parameters: EcsParameters:Ecs EventBridgeParameters:Event EventBridgePutEventsV2Parameters:Event
    EventBridgePutRawEventsParameters:RawEvents KinesisParameters:Kinesis
    SageMakerPipelineParameters:SageMaker

Name = (1..64~[0-9a-zA-Z-_.]+)
Token = (1..64~[a-zA-Z0-9-_]+)
NextToken = (1..2048)
State = <ENABLED,DISABLED>
TagKey = (1..128)
Tag: Key!:TagKey Value!:(1..256)
Tags = [Tag](0..200)
TargetArn = (1..1600)
# Without a dot: the dead-letter queue of a schedule cannot be a FIFO queue.
DeadLetterConfig: Arn:(1..1600~arn:aws[a-z-]*:sqs:[a-z0-9\-]+:\d{12}:[a-zA-Z0-9\-_]+)
RetryPolicy: MaximumEventAgeInSeconds:int(60..86400) MaximumRetryAttempts:int(0..185)
Sqs: MessageGroupId:(1..128)
Target: Arn!:TargetArn RoleArn!:(1..1600~arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@\/-]+)
    DeadLetterConfig:DeadLetterConfig RetryPolicy:RetryPolicy Input:(1..) *Parameters
    SqsParameters:Sqs
Window: Mode!:<OFF,FLEXIBLE> MaximumWindowInMinutes:int(1..1440)
Schedule: Name!:Name GroupName:Name ScheduleExpression!:(1..256) StartDate:time EndDate:time
    Description:(0..512) ScheduleExpressionTimezone:(1..50) State:State
    KmsKeyArn:(1..2048~arn:aws[a-z-]*:kms:[a-z0-9\-]+:\d{12}:(key|alias)\/[0-9a-zA-Z-_]*)
    Target!:Target FlexibleTimeWindow!:Window ActionAfterCompletion:<NONE,DELETE>
Dates: CreationDate:time LastModificationDate:time
Group: Arn Name:Name State:<ACTIVE,DELETING> *Dates
TargetSummary: Arn:TargetArn
Summary: Arn Name:Name GroupName:Name State:State *Dates Target:TargetSummary
Page: NextToken:NextToken MaxResults:int(1..100)
One: Name!:Name ClientToken:Token
Resource:
    ResourceArn!:(1..1011~arn:aws[a-z-]*:scheduler:[a-z0-9\-]+:\d{12}:schedule-group\/[0-9a-zA-Z-_.]+)

CreateSchedule(*Schedule ClientToken:Token) -> ScheduleArn
CreateScheduleGroup(*One Tags:Tags) -> ScheduleGroupArn
DeleteSchedule(*One GroupName:Name) ->
DeleteScheduleGroup(*One) ->
GetSchedule(Name!:Name GroupName:Name) -> Arn *Schedule *Dates
GetScheduleGroup(Name!:Name) -> *Group
ListScheduleGroups(NamePrefix:Name *Page) -> NextToken:NextToken ScheduleGroups:[Group]
ListSchedules(GroupName:Name NamePrefix:Name State:State *Page) ->
    NextToken:NextToken Schedules:[Summary]
ListTagsForResource(*Resource) -> Tags:Tags
TagResource(*Resource Tags!:Tags) ->
UntagResource(*Resource TagKeys!:[TagKey](0..200)) ->
UpdateSchedule(*Schedule ClientToken:Token) -> ScheduleArn
""")
RULES = _MODEL.rules
"""The rules of the model, by shape."""

PARAMETERS = _MODEL.structures["Parameters"].members
"""Members of a target for one kind of target, without SqsParameters."""

SCHEDULER = ServiceModel(
    name="scheduler",
    versions=("2021-06-30",),
    # Its only wire is rest-json, without targets and XML.
    target_prefix=None,
    json_version=None,
    xml_namespace="",
    xml_prolog="",
    xml_error_detail=False,
    actions=_MODEL.actions,
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
