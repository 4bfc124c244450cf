"""SNS: every action with its input and output (docs/contract/sns.md 3.1 and
docs/contract/protocol.md 1.3).

Member names are those of the service model, odd ones included (`AWSAccountId` is a list, the SMS
actions begin theirs with a small letter). Nothing is flattened. Members stand in the order in
which recordings of AWS show them, else in the model's. A test compares all of it with the model.
"""

from queuegate.protocol.shapes import (
    BLOB,
    BOOLEAN,
    INTEGER,
    STRING,
    TIMESTAMP,
    List,
    Map,
    Members,
    ServiceModel,
    Structure,
    action,
)


def _texts(*names: str) -> Members:
    return dict.fromkeys(names, STRING)


# `output` of the actions that answer with an empty Result element; None has no element at all.
_EMPTY: Members = {}

_STRINGS = List(STRING)
_ATTRIBUTES: Members = {"Attributes": Map(STRING)}
_NEXT = _texts("NextToken")
_PAGE: Members = {"NextToken": STRING, "MaxResults": INTEGER}
_TOPIC = _texts("TopicArn")
_RESOURCE = _texts("ResourceArn")
_SUBSCRIPTION = _texts("SubscriptionArn")
_APPLICATION = _texts("PlatformApplicationArn")
_ENDPOINT = _texts("EndpointArn")
_TAGS: Members = {"Tags": List(Structure(_texts("Value", "Key")))}
_SUBSCRIPTIONS: Members = {
    "Subscriptions": List(
        Structure(_texts("Owner", "Protocol", "Endpoint", "SubscriptionArn", "TopicArn"))
    ),
    **_NEXT,
}

_ATTRIBUTE_VALUE = Structure({"DataType": STRING, "StringValue": STRING, "BinaryValue": BLOB})
_MESSAGE: Members = {
    "Message": STRING,
    "Subject": STRING,
    "MessageStructure": STRING,
    "MessageAttributes": Map(_ATTRIBUTE_VALUE, key_name="Name", value_name="Value"),
    "MessageDeduplicationId": STRING,
    "MessageGroupId": STRING,
}
_PUBLISHED = Structure(_texts("MessageId", "Id", "SequenceNumber"))
_FAILED = Structure({**_texts("Code", "Message"), "SenderFault": BOOLEAN, "Id": STRING})


def _listed(structure: Members) -> List:
    return List(Structure({**structure, **_ATTRIBUTES}))


_ORIGINATION_NUMBER: Members = {
    "CreatedAt": TIMESTAMP,
    **_texts("PhoneNumber", "Status", "Iso2CountryCode", "RouteType"),
    "NumberCapabilities": _STRINGS,
}
_ACTIONS = (
    action(
        "AddPermission",
        {**_TOPIC, "Label": STRING, "AWSAccountId": _STRINGS, "ActionName": _STRINGS},
    ),
    action(
        "CreateTopic",
        {"Name": STRING, **_ATTRIBUTES, **_TAGS, "DataProtectionPolicy": STRING},
        _TOPIC,
    ),
    action("DeleteTopic", _TOPIC),
    action("GetDataProtectionPolicy", _RESOURCE, _texts("DataProtectionPolicy")),
    action("GetTopicAttributes", _TOPIC, _ATTRIBUTES),
    action("ListTagsForResource", _RESOURCE, _TAGS),
    action("ListTopics", _NEXT, {"Topics": List(Structure(_TOPIC)), **_NEXT}),
    action("PutDataProtectionPolicy", _texts("ResourceArn", "DataProtectionPolicy")),
    action("RemovePermission", _texts("TopicArn", "Label")),
    action("SetTopicAttributes", _texts("TopicArn", "AttributeName", "AttributeValue")),
    action("TagResource", {**_RESOURCE, **_TAGS}, _EMPTY),
    action("UntagResource", {**_RESOURCE, "TagKeys": _STRINGS}, _EMPTY),
    action(
        "ConfirmSubscription",
        _texts("TopicArn", "Token", "AuthenticateOnUnsubscribe"),
        _SUBSCRIPTION,
    ),
    action("GetSubscriptionAttributes", _SUBSCRIPTION, _ATTRIBUTES),
    action("ListSubscriptions", _NEXT, _SUBSCRIPTIONS),
    action("ListSubscriptionsByTopic", {**_TOPIC, **_NEXT}, _SUBSCRIPTIONS),
    action(
        "SetSubscriptionAttributes", _texts("SubscriptionArn", "AttributeName", "AttributeValue")
    ),
    action(
        "Subscribe",
        {
            **_texts("TopicArn", "Protocol", "Endpoint"),
            **_ATTRIBUTES,
            "ReturnSubscriptionArn": BOOLEAN,
        },
        _SUBSCRIPTION,
    ),
    action("Unsubscribe", _SUBSCRIPTION),
    action(
        "Publish",
        {**_texts("TopicArn", "TargetArn", "PhoneNumber"), **_MESSAGE},
        _texts("MessageId", "SequenceNumber"),
    ),
    action(
        "PublishBatch",
        {**_TOPIC, "PublishBatchRequestEntries": List(Structure({"Id": STRING, **_MESSAGE}))},
        {"Failed": List(_FAILED), "Successful": List(_PUBLISHED)},
    ),
    action(
        "CreatePlatformApplication", {**_texts("Name", "Platform"), **_ATTRIBUTES}, _APPLICATION
    ),
    action(
        "CreatePlatformEndpoint",
        {**_texts("PlatformApplicationArn", "Token", "CustomUserData"), **_ATTRIBUTES},
        _ENDPOINT,
    ),
    action("DeleteEndpoint", _ENDPOINT),
    action("DeletePlatformApplication", _APPLICATION),
    action("GetEndpointAttributes", _ENDPOINT, _ATTRIBUTES),
    action("GetPlatformApplicationAttributes", _APPLICATION, _ATTRIBUTES),
    action(
        "ListEndpointsByPlatformApplication",
        {**_APPLICATION, **_NEXT},
        {"Endpoints": _listed(_ENDPOINT), **_NEXT},
    ),
    action(
        "ListPlatformApplications", _NEXT, {"PlatformApplications": _listed(_APPLICATION), **_NEXT}
    ),
    action("SetEndpointAttributes", {**_ENDPOINT, **_ATTRIBUTES}),
    action("SetPlatformApplicationAttributes", {**_APPLICATION, **_ATTRIBUTES}),
    action("CheckIfPhoneNumberIsOptedOut", _texts("phoneNumber"), {"isOptedOut": BOOLEAN}),
    action("CreateSMSSandboxPhoneNumber", _texts("PhoneNumber", "LanguageCode"), _EMPTY),
    action("DeleteSMSSandboxPhoneNumber", _texts("PhoneNumber"), _EMPTY),
    action("GetSMSAttributes", {"attributes": _STRINGS}, {"attributes": Map(STRING)}),
    action("GetSMSSandboxAccountStatus", {}, {"IsInSandbox": BOOLEAN}),
    action(
        "ListOriginationNumbers",
        _PAGE,
        {**_NEXT, "PhoneNumbers": List(Structure(_ORIGINATION_NUMBER))},
    ),
    action(
        "ListPhoneNumbersOptedOut",
        _texts("nextToken"),
        {"phoneNumbers": _STRINGS, "nextToken": STRING},
    ),
    action(
        "ListSMSSandboxPhoneNumbers",
        _PAGE,
        {"PhoneNumbers": List(Structure(_texts("PhoneNumber", "Status"))), **_NEXT},
    ),
    action("OptInPhoneNumber", _texts("phoneNumber"), _EMPTY),
    action("SetSMSAttributes", {"attributes": Map(STRING)}, _EMPTY),
    action("VerifySMSSandboxPhoneNumber", _texts("PhoneNumber", "OneTimePassword"), _EMPTY),
)

SNS = ServiceModel(
    name="sns",
    versions=("2010-03-31",),
    # Not in the model, for clients that send JSON to all of AWS. SDKs use Query here.
    target_prefix="AmazonSNS",
    json_version="1.0",
    xml_namespace="http://sns.amazonaws.com/doc/2010-03-31/",
    xml_prolog="",
    xml_error_detail=False,
    actions=dict(_ACTIONS),
)
