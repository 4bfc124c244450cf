"""SQS: every action with its input and output (docs/contract/protocol.md 1.2 and 1.3).

Member names are those of the current service model, capitals included (`tags`, `queueUrls`);
Query names are those of the last model that had the Query protocol. A test compares both with
recordings of the models.
"""

from queuegate.protocol.shapes import (
    BLOB,
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    Action,
    List,
    Map,
    Members,
    ServiceModel,
    Shape,
    Structure,
    action,
)


def _map(value: Shape, flat: str, key_name: str = "Name") -> Map:
    return Map(value, flat, key_name, "Value")


_QUEUE: Members = {"QueueUrl": STRING}
_HANDLE: Members = {"ReceiptHandle": STRING}
_PAGE: Members = {"NextToken": STRING, "MaxResults": INTEGER}

_ATTRIBUTES = _map(STRING, "Attribute")
_ATTRIBUTE_NAMES = List(STRING, flat="AttributeName")
_TAGS = _map(STRING, "Tag", key_name="Key")
_QUEUE_URLS = List(STRING, flat="QueueUrl")

# XML writes the value before its type. SendMessage refuses list values, so it decodes them.
_ATTRIBUTE_VALUE = Structure(
    {
        "StringValue": STRING,
        "BinaryValue": BLOB,
        "StringListValues": List(STRING, flat="StringListValue"),
        "BinaryListValues": List(BLOB, flat="BinaryListValue"),
        "DataType": STRING,
    }
)
_MESSAGE_ATTRIBUTES = _map(_ATTRIBUTE_VALUE, "MessageAttribute")

_OUTGOING: Members = {
    "MessageBody": STRING,
    "DelaySeconds": INTEGER,
    "MessageAttributes": _MESSAGE_ATTRIBUTES,
    "MessageSystemAttributes": _map(_ATTRIBUTE_VALUE, "MessageSystemAttribute"),
    "MessageDeduplicationId": STRING,
    "MessageGroupId": STRING,
}
_SENT: Members = {
    "MessageId": STRING,
    "MD5OfMessageBody": STRING,
    "MD5OfMessageAttributes": STRING,
    "MD5OfMessageSystemAttributes": STRING,
    "SequenceNumber": STRING,
}
_RECEIVED = Structure(
    {
        "MessageId": STRING,
        "ReceiptHandle": STRING,
        "MD5OfBody": STRING,
        "Body": STRING,
        "Attributes": _ATTRIBUTES,
        "MD5OfMessageAttributes": STRING,
        "MessageAttributes": _MESSAGE_ATTRIBUTES,
    }
)
_FAILED = Structure({"Id": STRING, "Code": STRING, "Message": STRING, "SenderFault": BOOLEAN})
_MOVE_TASK = Structure(
    {
        "TaskHandle": STRING,
        "Status": STRING,
        "SourceArn": STRING,
        "DestinationArn": STRING,
        "MaxNumberOfMessagesPerSecond": INTEGER,
        "ApproximateNumberOfMessagesMoved": LONG,
        "ApproximateNumberOfMessagesToMove": LONG,
        "FailureReason": STRING,
        "StartedTimestamp": LONG,
    }
)


def _batch(name: str, entry: Members, done: Members) -> tuple[str, Action]:
    """Return a batch action: every Query name of its entries follows from the name of the
    action."""
    entries = List(Structure({"Id": STRING, **entry}), flat=f"{name}RequestEntry")
    successful = List(Structure({"Id": STRING, **done}), flat=f"{name}ResultEntry")
    output: Members = {
        "Successful": successful,
        "Failed": List(_FAILED, flat="BatchResultErrorEntry"),
    }
    return action(name, {**_QUEUE, "Entries": entries}, output)


_ACTIONS = (
    action(
        "AddPermission",
        {
            **_QUEUE,
            "Label": STRING,
            "AWSAccountIds": List(STRING, flat="AWSAccountId"),
            "Actions": List(STRING, flat="ActionName"),
        },
    ),
    action(
        "CancelMessageMoveTask", {"TaskHandle": STRING}, {"ApproximateNumberOfMessagesMoved": LONG}
    ),
    action("ChangeMessageVisibility", {**_QUEUE, **_HANDLE, "VisibilityTimeout": INTEGER}),
    _batch("ChangeMessageVisibilityBatch", {**_HANDLE, "VisibilityTimeout": INTEGER}, {}),
    action(
        "CreateQueue",
        {"QueueName": STRING, "Attributes": _ATTRIBUTES, "tags": _TAGS},
        {"QueueUrl": STRING},
    ),
    action("DeleteMessage", {**_QUEUE, **_HANDLE}),
    _batch("DeleteMessageBatch", _HANDLE, {}),
    action("DeleteQueue", _QUEUE),
    action(
        "GetQueueAttributes",
        {**_QUEUE, "AttributeNames": _ATTRIBUTE_NAMES},
        {"Attributes": _ATTRIBUTES},
    ),
    action(
        "GetQueueUrl", {"QueueName": STRING, "QueueOwnerAWSAccountId": STRING}, {"QueueUrl": STRING}
    ),
    action(
        "ListDeadLetterSourceQueues",
        {**_QUEUE, **_PAGE},
        {"queueUrls": _QUEUE_URLS, "NextToken": STRING},
    ),
    action(
        "ListMessageMoveTasks",
        {"SourceArn": STRING, "MaxResults": INTEGER},
        {"Results": List(_MOVE_TASK, flat="ListMessageMoveTasksResultEntry")},
    ),
    action("ListQueueTags", _QUEUE, {"Tags": _TAGS}),
    action(
        "ListQueues",
        {"QueueNamePrefix": STRING, **_PAGE},
        {"QueueUrls": _QUEUE_URLS, "NextToken": STRING},
    ),
    action("PurgeQueue", _QUEUE),
    action(
        "ReceiveMessage",
        {
            **_QUEUE,
            "AttributeNames": _ATTRIBUTE_NAMES,
            "MessageSystemAttributeNames": List(STRING, flat="MessageSystemAttributeName"),
            "MessageAttributeNames": List(STRING, flat="MessageAttributeName"),
            "MaxNumberOfMessages": INTEGER,
            "VisibilityTimeout": INTEGER,
            "WaitTimeSeconds": INTEGER,
            "ReceiveRequestAttemptId": STRING,
        },
        {"Messages": List(_RECEIVED, flat="Message")},
    ),
    action("RemovePermission", {**_QUEUE, "Label": STRING}),
    action("SendMessage", {**_QUEUE, **_OUTGOING}, _SENT),
    _batch("SendMessageBatch", _OUTGOING, _SENT),
    action("SetQueueAttributes", {**_QUEUE, "Attributes": _ATTRIBUTES}),
    action(
        "StartMessageMoveTask",
        {"SourceArn": STRING, "DestinationArn": STRING, "MaxNumberOfMessagesPerSecond": INTEGER},
        {"TaskHandle": STRING},
    ),
    action("TagQueue", {**_QUEUE, "Tags": _TAGS}),
    action("UntagQueue", {**_QUEUE, "TagKeys": List(STRING, flat="TagKey")}),
)

SQS = ServiceModel(
    name="sqs",
    # The older versions are those that AWS has published for SQS; its oldest SDKs still send them.
    versions=("2012-11-05", "2011-10-01", "2009-02-01", "2008-01-01", "2007-05-01"),
    target_prefix="AmazonSQS",
    json_version="1.0",
    xml_namespace="http://queue.amazonaws.com/doc/2012-11-05/",
    xml_prolog='<?xml version="1.0"?>',
    xml_error_detail=True,
    actions=dict(_ACTIONS),
)
