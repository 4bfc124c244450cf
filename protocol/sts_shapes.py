"""STS: the identity of the caller, and temporary credentials (docs/contract/protocol.md 1.8)."""

from queuegate.protocol.shapes import (
    INTEGER,
    STRING,
    TIMESTAMP,
    Action,
    Constraint,
    List,
    Scalar,
    ServiceModel,
    Structure,
)
from queuegate.protocol.shapes import Shape as _Shape

_ROLE_ARN = Scalar("string")
_SESSION_NAME = Scalar("string")
_POLICY = Scalar("string")
_WEB_POLICY = Scalar("string")
_ROLE_SECONDS = Scalar("integer")
_USER_SECONDS = Scalar("integer")
_SOURCE_IDENTITY = Scalar("string")
_ACCESS_KEY = Scalar("string")
_TAG = Structure({"Key": STRING, "Value": STRING})
_POLICY_ARNS = List(Structure({"arn": STRING}))
_CREDENTIALS = Structure(
    {
        "AccessKeyId": STRING,
        "SecretAccessKey": STRING,
        "SessionToken": STRING,
        "Expiration": TIMESTAMP,
    }
)
_USER = Structure({"AssumedRoleId": STRING, "Arn": STRING})
_SIZES: dict[str, _Shape] = {"SessionTokenUtilization": INTEGER, "SessionTokenSize": INTEGER}

_ASSUME_ROLE = Action(
    "AssumeRole",
    Structure(
        {
            "RoleArn": _ROLE_ARN,
            "RoleSessionName": _SESSION_NAME,
            "PolicyArns": _POLICY_ARNS,
            "Policy": _POLICY,
            "DurationSeconds": _ROLE_SECONDS,
            "Tags": List(_TAG),
            "TransitiveTagKeys": List(STRING),
            "ExternalId": STRING,
            "SerialNumber": STRING,
            "TokenCode": STRING,
            "SourceIdentity": _SOURCE_IDENTITY,
            "ProvidedContexts": List(
                Structure({"ProviderArn": STRING, "ContextAssertion": STRING})
            ),
            "MinimumSessionTokenSize": INTEGER,
        }
    ),
    Structure(
        {
            "Credentials": _CREDENTIALS,
            "AssumedRoleUser": _USER,
            "PackedPolicySize": INTEGER,
            "SourceIdentity": STRING,
            **_SIZES,
        }
    ),
)
_ASSUME_WITH_WEB_IDENTITY = Action(
    "AssumeRoleWithWebIdentity",
    Structure(
        {
            "RoleArn": _ROLE_ARN,
            "RoleSessionName": _SESSION_NAME,
            "WebIdentityToken": STRING,
            "ProviderId": STRING,
            "PolicyArns": _POLICY_ARNS,
            "Policy": _WEB_POLICY,
            "DurationSeconds": _ROLE_SECONDS,
            "MinimumSessionTokenSize": INTEGER,
        }
    ),
    Structure(
        {
            "Credentials": _CREDENTIALS,
            "SubjectFromWebIdentityToken": STRING,
            "AssumedRoleUser": _USER,
            "PackedPolicySize": INTEGER,
            "Provider": STRING,
            "Audience": STRING,
            "SourceIdentity": STRING,
            **_SIZES,
        }
    ),
)
_GET_SESSION_TOKEN = Action(
    "GetSessionToken",
    Structure(
        {
            "DurationSeconds": _USER_SECONDS,
            "SerialNumber": STRING,
            "TokenCode": STRING,
            "MinimumSessionTokenSize": INTEGER,
        }
    ),
    Structure({"Credentials": _CREDENTIALS, **_SIZES}),
)
_GET_ACCESS_KEY_INFO = Action(
    "GetAccessKeyInfo",
    Structure({"AccessKeyId": _ACCESS_KEY}),
    Structure({"Account": STRING}),
)
_GET_CALLER_IDENTITY = Action(
    "GetCallerIdentity",
    Structure({}),
    Structure({"UserId": STRING, "Account": STRING, "Arn": STRING}),
)

STS = ServiceModel(
    name="sts",
    versions=("2011-06-15",),
    target_prefix=None,
    json_version=None,
    xml_namespace="https://sts.amazonaws.com/doc/2011-06-15/",
    xml_prolog="",
    xml_error_detail=False,
    actions={
        action.name: action
        for action in (
            _ASSUME_ROLE,
            _ASSUME_WITH_WEB_IDENTITY,
            _GET_ACCESS_KEY_INFO,
            _GET_CALLER_IDENTITY,
            _GET_SESSION_TOKEN,
        )
    },
)

_CHARACTERS = r"[\u0009\u000A\u000D\u0020-\u00FF]+"
_NAME = r"[\w+=,.@-]*"
RULES: dict[_Shape, Constraint] = {
    _ASSUME_ROLE.input: Constraint(required=("RoleArn", "RoleSessionName")),
    _ASSUME_WITH_WEB_IDENTITY.input: Constraint(
        required=("RoleArn", "RoleSessionName", "WebIdentityToken")
    ),
    _GET_ACCESS_KEY_INFO.input: Constraint(required=("AccessKeyId",)),
    _ROLE_ARN: Constraint(20, 2048),
    _SESSION_NAME: Constraint(2, 64, _NAME),
    _POLICY: Constraint(1, pattern=_CHARACTERS),
    _WEB_POLICY: Constraint(1, 2048, _CHARACTERS),
    _ROLE_SECONDS: Constraint(900, 43_200),
    _USER_SECONDS: Constraint(900, 129_600),
    _SOURCE_IDENTITY: Constraint(2, 64, _NAME),
    # No minimum: an account of 12 digits is a key here.
    _ACCESS_KEY: Constraint(None, 128, r"[\w]*"),
}
"""Rules of the service model, except for tokens and codes, which may be any text."""
