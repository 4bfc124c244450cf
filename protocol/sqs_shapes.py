"""SQS: every action with its input and output (docs/contract/protocol.md 1.2 and 1.3).

Member names are those of the current service model, capitals included (`tags`, `queueUrls`);
Query names are those of the last model that had the Query protocol. A test compares both with
recordings of the models.
"""

from queuegate.protocol.shapes import ModelText, ServiceModel

_MODEL = ModelText("""\
Queue: QueueUrl
Page: NextToken MaxResults:int
Attributes = {Name/Value/}@Attribute
AttributeNames = []@AttributeName
Tags = {Key/Value/}@Tag
QueueUrls = []@QueueUrl
# XML writes the value before its type. SendMessage refuses list values, so it decodes them.
AttributeValue: StringValue BinaryValue:blob StringListValues:[]@StringListValue
    BinaryListValues:[blob]@BinaryListValue DataType
MessageAttributes = {Name/Value/AttributeValue}@MessageAttribute
Outgoing: MessageBody DelaySeconds:int MessageAttributes:MessageAttributes
    MessageSystemAttributes:{Name/Value/AttributeValue}@MessageSystemAttribute
    MessageDeduplicationId MessageGroupId
Sent: MessageId MD5OfMessageBody MD5OfMessageAttributes MD5OfMessageSystemAttributes SequenceNumber
Received: MessageId ReceiptHandle MD5OfBody Body Attributes:Attributes MD5OfMessageAttributes
    MessageAttributes:MessageAttributes
MoveTask: TaskHandle Status SourceArn DestinationArn MaxNumberOfMessagesPerSecond:int
    ApproximateNumberOfMessagesMoved:long ApproximateNumberOfMessagesToMove:long FailureReason
    StartedTimestamp:long
Failure: Id Code Message SenderFault:bool
Failures: Failed:[Failure]@BatchResultErrorEntry
Id: Id
SentEntry: Id *Sent
ToSend: Id *Outgoing
ToDelete: Id ReceiptHandle
ToChange: Id ReceiptHandle VisibilityTimeout:int

AddPermission(*Queue Label AWSAccountIds:[]@AWSAccountId Actions:[]@ActionName)
CancelMessageMoveTask(TaskHandle) -> ApproximateNumberOfMessagesMoved:long
ChangeMessageVisibility(*Queue ReceiptHandle VisibilityTimeout:int)
ChangeMessageVisibilityBatch(*Queue Entries:[ToChange]@ChangeMessageVisibilityBatchRequestEntry) ->
    Successful:[Id]@ChangeMessageVisibilityBatchResultEntry *Failures
CreateQueue(QueueName Attributes:Attributes tags:Tags) -> QueueUrl
DeleteMessage(*Queue ReceiptHandle)
DeleteMessageBatch(*Queue Entries:[ToDelete]@DeleteMessageBatchRequestEntry) ->
    Successful:[Id]@DeleteMessageBatchResultEntry *Failures
DeleteQueue(*Queue)
GetQueueAttributes(*Queue AttributeNames:AttributeNames) -> Attributes:Attributes
GetQueueUrl(QueueName QueueOwnerAWSAccountId) -> QueueUrl
ListDeadLetterSourceQueues(*Queue *Page) -> queueUrls:QueueUrls NextToken
ListMessageMoveTasks(SourceArn MaxResults:int) ->
    Results:[MoveTask]@ListMessageMoveTasksResultEntry
ListQueueTags(*Queue) -> Tags:Tags
ListQueues(QueueNamePrefix *Page) -> QueueUrls:QueueUrls NextToken
PurgeQueue(*Queue)
ReceiveMessage(*Queue AttributeNames:AttributeNames
    MessageSystemAttributeNames:[]@MessageSystemAttributeName
    MessageAttributeNames:[]@MessageAttributeName MaxNumberOfMessages:int VisibilityTimeout:int
    WaitTimeSeconds:int ReceiveRequestAttemptId) -> Messages:[Received]@Message
RemovePermission(*Queue Label)
SendMessage(*Queue *Outgoing) -> *Sent
SendMessageBatch(*Queue Entries:[ToSend]@SendMessageBatchRequestEntry) ->
    Successful:[SentEntry]@SendMessageBatchResultEntry *Failures
SetQueueAttributes(*Queue Attributes:Attributes)
StartMessageMoveTask(SourceArn DestinationArn MaxNumberOfMessagesPerSecond:int) -> TaskHandle
TagQueue(*Queue Tags:Tags)
UntagQueue(*Queue TagKeys:[]@TagKey)
""")

SQS = ServiceModel(
    name="sqs",
    # The older versions are those that AWS has published for SQS; its oldest SDKs still send them.
    versions=("2012-11-05", "2011-10-01", "2009-02-01", "2008-01-01", "2007-05-01"),
    target_prefix="AmazonSQS",
    json_version="1.0",
    xml_namespace="http://queue.amazonaws.com/doc/2012-11-05/",
    xml_prolog='<?xml version="1.0"?>',
    xml_error_detail=True,
    actions=_MODEL.actions,
)
