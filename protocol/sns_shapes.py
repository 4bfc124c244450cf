"""SNS: every action with its input and output (docs/contract/sns.md 3.1 and
docs/contract/protocol.md 1.3).

Member names are those of the service model, odd ones included (`AWSAccountId` is a list, the SMS
actions begin theirs with a small letter). Nothing is flattened. Members stand in the order in
which recordings of AWS show them, else in the model's. A test compares all of it with the model.
"""

from queuegate.protocol.shapes import ModelText, ServiceModel

# An arrow without members: the action answers with an empty Result element.
_MODEL = ModelText("""\
Attributes: Attributes:{}
Page: NextToken MaxResults:int
Tag: Value Key
Tags: Tags:[Tag]
Subscription: Owner Protocol Endpoint SubscriptionArn TopicArn
Subscriptions: Subscriptions:[Subscription] NextToken
AttributeValue: DataType StringValue BinaryValue:blob
Message: Message Subject MessageStructure MessageAttributes:{Name/Value/AttributeValue}
    MessageDeduplicationId MessageGroupId
ToPublish: Id *Message
Published: MessageId Id SequenceNumber
Failed: Code Message SenderFault:bool Id
Topic: TopicArn
Endpoint: EndpointArn *Attributes
Application: PlatformApplicationArn *Attributes
SandboxNumber: PhoneNumber Status
OriginationNumber: CreatedAt:time PhoneNumber Status Iso2CountryCode RouteType NumberCapabilities:[]

AddPermission(TopicArn Label AWSAccountId:[] ActionName:[])
CreateTopic(Name *Attributes *Tags DataProtectionPolicy) -> TopicArn
DeleteTopic(TopicArn)
GetDataProtectionPolicy(ResourceArn) -> DataProtectionPolicy
GetTopicAttributes(TopicArn) -> *Attributes
ListTagsForResource(ResourceArn) -> *Tags
ListTopics(NextToken) -> Topics:[Topic] NextToken
PutDataProtectionPolicy(ResourceArn DataProtectionPolicy)
RemovePermission(TopicArn Label)
SetTopicAttributes(TopicArn AttributeName AttributeValue)
TagResource(ResourceArn *Tags) ->
UntagResource(ResourceArn TagKeys:[]) ->
ConfirmSubscription(TopicArn Token AuthenticateOnUnsubscribe) -> SubscriptionArn
GetSubscriptionAttributes(SubscriptionArn) -> *Attributes
ListSubscriptions(NextToken) -> *Subscriptions
ListSubscriptionsByTopic(TopicArn NextToken) -> *Subscriptions
SetSubscriptionAttributes(SubscriptionArn AttributeName AttributeValue)
Subscribe(TopicArn Protocol Endpoint *Attributes ReturnSubscriptionArn:bool) -> SubscriptionArn
Unsubscribe(SubscriptionArn)
Publish(TopicArn TargetArn PhoneNumber *Message) -> MessageId SequenceNumber
PublishBatch(TopicArn PublishBatchRequestEntries:[ToPublish]) ->
    Failed:[Failed] Successful:[Published]
CreatePlatformApplication(Name Platform *Attributes) -> PlatformApplicationArn
CreatePlatformEndpoint(PlatformApplicationArn Token CustomUserData *Attributes) -> EndpointArn
DeleteEndpoint(EndpointArn)
DeletePlatformApplication(PlatformApplicationArn)
GetEndpointAttributes(EndpointArn) -> *Attributes
GetPlatformApplicationAttributes(PlatformApplicationArn) -> *Attributes
ListEndpointsByPlatformApplication(PlatformApplicationArn NextToken) ->
    Endpoints:[Endpoint] NextToken
ListPlatformApplications(NextToken) -> PlatformApplications:[Application] NextToken
SetEndpointAttributes(EndpointArn *Attributes)
SetPlatformApplicationAttributes(PlatformApplicationArn *Attributes)
CheckIfPhoneNumberIsOptedOut(phoneNumber) -> isOptedOut:bool
CreateSMSSandboxPhoneNumber(PhoneNumber LanguageCode) ->
DeleteSMSSandboxPhoneNumber(PhoneNumber) ->
GetSMSAttributes(attributes:[]) -> attributes:{}
GetSMSSandboxAccountStatus() -> IsInSandbox:bool
ListOriginationNumbers(*Page) -> NextToken PhoneNumbers:[OriginationNumber]
ListPhoneNumbersOptedOut(nextToken) -> phoneNumbers:[] nextToken
ListSMSSandboxPhoneNumbers(*Page) -> PhoneNumbers:[SandboxNumber] NextToken
OptInPhoneNumber(phoneNumber) ->
SetSMSAttributes(attributes:{}) ->
VerifySMSSandboxPhoneNumber(PhoneNumber OneTimePassword) ->
""")

SNS = ServiceModel(
    name="sns",
    versions=("2010-03-31",),
    # Not in the model, for clients that send JSON to all of AWS. SDKs use Query here.
    target_prefix="AmazonSNS",
    json_version="1.0",
    xml_namespace="http://sns.amazonaws.com/doc/2010-03-31/",
    xml_prolog="",
    xml_error_detail=False,
    actions=_MODEL.actions,
)
