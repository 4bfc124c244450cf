"""STS: the identity of the caller, and temporary credentials (docs/contract/protocol.md 1.8)."""

from queuegate.protocol.shapes import (
    INTEGER,
    STRING,
    TIMESTAMP,
    Constraint,
    List,
    Scalar,
    ScalarKind,
    ServiceModel,
    Shape,
    Structure,
    action,
)

_CHARACTERS = r"[\u0009\u000A\u000D\u0020-\u00FF]+"
_SESSION = Constraint(2, 64, r"[\w+=,.@-]*")
RULES: dict[Shape, Constraint] = {}
"""Rules of the service model, except for tokens and codes, which may be any text."""


def _ruled(kind: ScalarKind, rule: Constraint) -> Scalar:
    shape = Scalar(kind)
    RULES[shape] = rule
    return shape


_ROLE_ARN = _ruled("string", Constraint(20, 2048))
_SESSION_NAME = _ruled("string", _SESSION)
_ROLE_SECONDS = _ruled("integer", Constraint(900, 43_200))
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
_SIZES: dict[str, Shape] = {"SessionTokenUtilization": INTEGER, "SessionTokenSize": INTEGER}

_ACTIONS = dict(
    (
        action(
            "AssumeRole",
            {
                "RoleArn": _ROLE_ARN,
                "RoleSessionName": _SESSION_NAME,
                "PolicyArns": _POLICY_ARNS,
                "Policy": _ruled("string", Constraint(1, pattern=_CHARACTERS)),
                "DurationSeconds": _ROLE_SECONDS,
                "Tags": List(_TAG),
                "TransitiveTagKeys": List(STRING),
                "ExternalId": STRING,
                "SerialNumber": STRING,
                "TokenCode": STRING,
                "SourceIdentity": _ruled("string", _SESSION),
                "ProvidedContexts": List(
                    Structure({"ProviderArn": STRING, "ContextAssertion": STRING})
                ),
                "MinimumSessionTokenSize": INTEGER,
            },
            {
                "Credentials": _CREDENTIALS,
                "AssumedRoleUser": _USER,
                "PackedPolicySize": INTEGER,
                "SourceIdentity": STRING,
                **_SIZES,
            },
        ),
        action(
            "AssumeRoleWithWebIdentity",
            {
                "RoleArn": _ROLE_ARN,
                "RoleSessionName": _SESSION_NAME,
                "WebIdentityToken": STRING,
                "ProviderId": STRING,
                "PolicyArns": _POLICY_ARNS,
                "Policy": _ruled("string", Constraint(1, 2048, _CHARACTERS)),
                "DurationSeconds": _ROLE_SECONDS,
                "MinimumSessionTokenSize": INTEGER,
            },
            {
                "Credentials": _CREDENTIALS,
                "SubjectFromWebIdentityToken": STRING,
                "AssumedRoleUser": _USER,
                "PackedPolicySize": INTEGER,
                "Provider": STRING,
                "Audience": STRING,
                "SourceIdentity": STRING,
                **_SIZES,
            },
        ),
        action(
            "GetSessionToken",
            {
                "DurationSeconds": _ruled("integer", Constraint(900, 129_600)),
                "SerialNumber": STRING,
                "TokenCode": STRING,
                "MinimumSessionTokenSize": INTEGER,
            },
            {"Credentials": _CREDENTIALS, **_SIZES},
        ),
        action(
            "GetAccessKeyInfo",
            # No minimum: an account of 12 digits is a key here.
            {"AccessKeyId": _ruled("string", Constraint(None, 128, r"[\w]*"))},
            {"Account": STRING},
        ),
        action("GetCallerIdentity", {}, {"UserId": STRING, "Account": STRING, "Arn": STRING}),
    )
)

STS = ServiceModel(
    name="sts",
    versions=("2011-06-15",),
    target_prefix=None,
    json_version=None,
    xml_namespace="https://sts.amazonaws.com/doc/2011-06-15/",
    xml_prolog="",
    xml_error_detail=False,
    actions=_ACTIONS,
)
RULES |= {
    _ACTIONS[name].input: Constraint(required=required)
    for name, required in (
        ("AssumeRole", ("RoleArn", "RoleSessionName")),
        ("AssumeRoleWithWebIdentity", ("RoleArn", "RoleSessionName", "WebIdentityToken")),
        ("GetAccessKeyInfo", ("AccessKeyId",)),
    )
}
