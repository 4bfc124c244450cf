"""SNS: mobile push and SMS as clients see them, on both wires."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from queuegate.gateway.faces.aws.sns.mobile_push import PLATFORMS
from queuegate.protocol.opaque_tokens import token_behind
from tests.faces.clients import Refused, authorization
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.sns_client import Sns

CREDENTIALS = {"PlatformCredential": "secret key", "PlatformPrincipal": "secret certificate"}
NUMBER = "+15550100"
NO_DEVICE = f"endpoint/APNS/phones/{'0' * 8}-0000-4000-8000-{'0' * 12}"


def assert_refused(refused: Refused, code: str, text: str) -> None:
    """Refused with a text that begins so; 404 when something does not exist."""
    status = 404 if code in {"NotFound", "ResourceNotFound"} else 400
    assert (refused.status, refused.code) == (status, code)
    assert refused.text.startswith(text), refused.text


def invalid(refused: Refused, text: str) -> None:
    assert_refused(refused, "InvalidParameter", f"Invalid parameter: {text}")


def ask_page(sns: Sns, method: str, target: str) -> Answer:
    """A page of ours, with the credentials of this client."""
    with Connection(sns.url) as connection:
        headers = {
            "Host": connection.host,
            "Authorization": authorization(sns.account, sns.region, "sns"),
        }
        connection.send(request_bytes(method, target, headers))
        return connection.answer()


def outbox(sns: Sns) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(ask_page(sns, "GET", "/_admin/outbox").body)[
        "messages"
    ]
    return messages


def application(sns: Sns, name: str = "phones", platform: str = "GCM", **attributes: str) -> str:
    members = {"Name": name, "Platform": platform, "Attributes": CREDENTIALS | attributes}
    arn: str = sns.call("CreatePlatformApplication", **members)["PlatformApplicationArn"]
    return arn


def shown(sns: Sns, arn: str) -> dict[str, str]:
    """Return the attributes of an application or endpoint."""
    action, name = "GetPlatformApplicationAttributes", "PlatformApplicationArn"
    if ":endpoint/" in arn:
        action, name = "GetEndpointAttributes", "EndpointArn"
    found: dict[str, str] = sns.call(action, **{name: arn})["Attributes"]
    return found


def device(sns: Sns, app: str, token: str = "token", **members: Any) -> str:
    members = {"PlatformApplicationArn": app, "Token": token} | members
    arn: str = sns.call("CreatePlatformEndpoint", **members)["EndpointArn"]
    return arn


def devices(sns: Sns, app: str) -> list[dict[str, Any]]:
    listed = sns.call("ListEndpointsByPlatformApplication", PlatformApplicationArn=app)
    found: list[dict[str, Any]] = listed["Endpoints"]
    return found


def test_life_of_an_application(sns: Sns) -> None:
    arn = application(sns)
    assert arn == f"arn:aws:sns:us-east-1:{sns.account}:app/GCM/phones"
    named = {"PlatformApplicationArn": arn}
    topic = sns.topic_arn("news")
    changes = {"EventEndpointCreated": topic}
    assert sns.call("SetPlatformApplicationAttributes", **named, Attributes=changes) == {}
    wanted = {"Enabled": "true", "EventEndpointCreated": topic}
    assert sns.call("GetPlatformApplicationAttributes", **named) == {"Attributes": wanted}
    listed = {"PlatformApplications": [{**named, "Attributes": wanted}]}
    assert sns.call("ListPlatformApplications") == listed
    assert sns.call("DeletePlatformApplication", **named) == {}
    assert sns.call("ListPlatformApplications") == {"PlatformApplications": []}
    refused = sns.refusal("GetPlatformApplicationAttributes", **named)
    assert (refused.status, refused.code, refused.text) == (
        404,
        "NotFound",
        "PlatformApplication does not exist",
    )


def test_each_platform_has_applications(sns: Sns) -> None:
    for platform in PLATFORMS:
        arn = application(sns, "phones", platform)
        assert arn == f"arn:aws:sns:us-east-1:{sns.account}:app/{platform}/phones"
        assert shown(sns, arn) == {"Enabled": "true"}
    key = {"PlatformCredential": "key"}
    members = {"Name": "a", "Platform": "FCM", "Attributes": key}
    made = sns.call("CreatePlatformApplication", **members)
    assert made["PlatformApplicationArn"].endswith(":app/GCM/a")


def test_the_same_application_again_is_the_same(sns: Sns) -> None:
    arn = application(sns, Enabled="TRUE")
    assert application(sns) == arn
    for changed in ({"PlatformCredential": "other"}, {"Enabled": "false"}):
        members = {"Name": "phones", "Platform": "GCM", "Attributes": CREDENTIALS | changed}
        refused = sns.refusal("CreatePlatformApplication", **members)
        text = "An application with the same name but different properties already exists"
        invalid(refused, f"Name Reason: {text}")


NAME_CHARACTERS = "must contain only characters 'a'-'z', 'A'-'Z', '0'-'9', '_', '-', and '.'"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "cannot be empty"),
        ("a" * 257, "must be at most 256 characters long"),
        ("a/b", NAME_CHARACTERS),
        ("a\n", NAME_CHARACTERS),
        ("é", NAME_CHARACTERS),
    ],
)
def test_names_of_applications(sns: Sns, name: str, reason: str) -> None:
    members = {"Name": name, "Platform": "APNS", "Attributes": CREDENTIALS}
    refused = sns.refusal("CreatePlatformApplication", **members)
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert refused.text.endswith(f"Reason: {reason}")


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"PlatformCredential": "a"}, "PlatformCredential attribute provided without"),
        ({"PlatformPrincipal": "a"}, "PlatformPrincipal attribute provided without"),
        ({"Colour": "blue"}, "Invalid attribute name: Colour"),
        ({"Enabled": "yes"}, "Invalid value for attribute: Enabled"),
        ({"SuccessFeedbackSampleRate": "101"}, "Invalid value for attribute: Success"),
        ({"PlatformCredential": "\x00"}, "Invalid value for attribute: PlatformCredential"),
        ({"PlatformCredential": "x" * 70_000}, "Invalid value for attribute: PlatformCredential"),
        ({"EventEndpointCreated": "x" * 2049}, "Invalid value for attribute: EventEndpointCreated"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_attributes_of_applications(sns: Sns, attributes: dict[str, str], reason: str) -> None:
    members = {"Name": "a", "Platform": "APNS", "Attributes": attributes}
    invalid(sns.refusal("CreatePlatformApplication", **members), f"Attributes Reason: {reason}")
    members = {"Name": "a", "Platform": "PIGEON", "Attributes": attributes}
    refused = sns.refusal("CreatePlatformApplication", **members)
    invalid(refused, "Platform Reason: PIGEON is not supported")
    assert sns.call("ListPlatformApplications") == {"PlatformApplications": []}


def test_attributes_of_an_application_are_merged(sns: Sns) -> None:
    arn = application(sns, SuccessFeedbackSampleRate="5")
    changes = {"EventEndpointCreated": sns.topic_arn("news"), "Enabled": "False"}
    members = {"PlatformApplicationArn": arn, "Attributes": changes}
    sns.call("SetPlatformApplicationAttributes", **members)
    assert shown(sns, arn) == changes | {"Enabled": "false", "SuccessFeedbackSampleRate": "5"}
    refused = sns.refusal("SetPlatformApplicationAttributes", **members | {"Attributes": {}})
    assert refused.code == "ValidationError"


@pytest.mark.parametrize(
    ("arn", "reason"),
    [
        ("nonsense", " Reason: An ARN must have at least 6 elements, not 1"),
        ("a:b:c:d:e", " Reason: An ARN must have at least 6 elements, not 5"),
        ("arn:aws:sns:us-east-1:{}:news", " Reason: Wrong number"),
        ("arn:aws:sqs:us-east-1:{}:app/APNS/a", ""),
        ("a:b:c:d:e:\x00", ""),
    ],
)
def test_arns_of_applications(sns: Sns, arn: str, reason: str) -> None:
    named = {"PlatformApplicationArn": arn.format(sns.account)}
    for action in ("GetPlatformApplicationAttributes", "DeletePlatformApplication"):
        invalid(sns.refusal(action, **named), f"PlatformApplicationArn{reason}")


@pytest.mark.parametrize("changes", [{"region": "eu-west-1"}, {"account": "999999999999"}])
def test_nobody_else_sees_or_deletes_an_application(sns: Sns, changes: dict[str, str]) -> None:
    app = application(sns)
    arn = device(sns, app)
    with sns.other(**changes) as other:
        refused = other.refusal("GetPlatformApplicationAttributes", PlatformApplicationArn=app)
        assert_refused(refused, "NotFound", "PlatformApplication does not exist")
        refused = other.refusal("GetEndpointAttributes", EndpointArn=arn)
        assert_refused(refused, "NotFound", "Endpoint does not exist")
        other.call("DeleteEndpoint", EndpointArn=arn)
        other.call("DeletePlatformApplication", PlatformApplicationArn=app)
    assert shown(sns, arn)


def test_a_deleted_application_takes_its_endpoints_along(sns: Sns) -> None:
    app = application(sns)
    arn = device(sns, app)
    named = {"PlatformApplicationArn": app}
    for _ in range(2):
        sns.call("DeletePlatformApplication", **named)
    for action, members in (
        ("GetPlatformApplicationAttributes", {}),
        ("CreatePlatformEndpoint", {"Token": "token"}),
        ("ListEndpointsByPlatformApplication", {}),
        ("SetPlatformApplicationAttributes", {"Attributes": CREDENTIALS}),
    ):
        refused = sns.refusal(action, **named, **members)
        assert_refused(refused, "NotFound", "PlatformApplication does not exist")
    refused = sns.refusal("GetEndpointAttributes", EndpointArn=arn)
    assert_refused(refused, "NotFound", "Endpoint does not exist")


def test_no_answer_has_credentials(sns: Sns) -> None:
    named = {"PlatformApplicationArn": application(sns)}
    for action, members in (
        ("GetPlatformApplicationAttributes", named),
        ("ListPlatformApplications", {}),
        ("SetPlatformApplicationAttributes", named | {"Attributes": CREDENTIALS}),
    ):
        assert b"secret" not in sns.ask(action, members).body
    refused = sns.refusal(
        "CreatePlatformApplication",
        Name="phones",
        Platform="GCM",
        Attributes={"PlatformCredential": "another secret"},
    )
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert "secret" not in refused.text


def test_life_of_an_endpoint(sns: Sns) -> None:
    app = application(sns)
    arn = device(sns, app, CustomUserData="Grüße <&>")
    pattern = rf"arn:aws:sns:us-east-1:{sns.account}:endpoint/GCM/phones/[0-9a-f-]{{36}}"
    assert re.fullmatch(pattern, arn)
    assert device(sns, app, Attributes={"CustomUserData": "Grüße <&>"}) == arn
    wanted = {"Enabled": "true", "Token": "token", "CustomUserData": "Grüße <&>"}
    named = {"EndpointArn": arn}
    assert sns.call("GetEndpointAttributes", **named) == {"Attributes": wanted}
    changes = {"Enabled": "false", "Token": "newer"}
    assert sns.call("SetEndpointAttributes", **named, Attributes=changes) == {}
    listed = sns.call("ListEndpointsByPlatformApplication", PlatformApplicationArn=app)
    assert listed == {"Endpoints": [{**named, "Attributes": wanted | changes}]}
    refused = sns.refusal("CreatePlatformEndpoint", PlatformApplicationArn=app, Token="newer")
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert refused.text == (
        f"Invalid parameter: Token Reason: Endpoint {arn} already exists with the same Token, but "
        "different attributes."
    )
    for _ in range(2):
        assert sns.call("DeleteEndpoint", **named) == {}
    refused = sns.refusal("GetEndpointAttributes", **named)
    assert (refused.status, refused.code) == (404, "NotFound")
    assert refused.text == "Endpoint does not exist"


def test_an_endpoint_may_be_disabled_and_without_data(sns: Sns) -> None:
    disabled = {"Enabled": "False"}
    arn = device(sns, application(sns), CustomUserData="", Attributes=disabled)
    assert shown(sns, arn) == {"Enabled": "false", "Token": "token"}


def test_a_token_has_one_endpoint_with_its_attributes(sns: Sns) -> None:
    app = application(sns)
    enabled = {"Enabled": "true", "CustomUserData": "data"}
    arn = device(sns, app, CustomUserData="data", Attributes={"Enabled": "true"})
    assert device(sns, app, CustomUserData="other", Attributes=enabled) == arn
    taken = f"Token Reason: Endpoint {arn} already exists with the same Token, but different"
    for attributes in ({}, {"CustomUserData": "b"}, enabled | {"Enabled": "false"}):
        members = {"PlatformApplicationArn": app, "Token": "token", "Attributes": attributes}
        invalid(sns.refusal("CreatePlatformEndpoint", **members), taken)
    second = device(sns, app, "b")
    changes = {"Token": "token", "Enabled": "false"}
    refused = sns.refusal("SetEndpointAttributes", EndpointArn=second, Attributes=changes)
    invalid(refused, f"Token Reason: Endpoint {arn} already exists")
    assert shown(sns, second) == {"Enabled": "true", "Token": "b"}
    assert len(devices(sns, app)) == 2


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"CustomUserData": "é" * 1025}, "Attributes Reason: Invalid value for attribute: Custom"),
        ({"CustomUserData": "\x00"}, "Attributes Reason: Invalid value for attribute: Custom"),
        ({"Enabled": "1"}, "Attributes Reason: Invalid value for attribute: Enabled"),
        ({"Colour": "blue"}, "Attributes Reason: Invalid attribute name: Colour"),
        ({"Token": ""}, "Token Reason: must be between 1 and 2048 bytes"),
        ({"Token": "a" * 401}, "Token Reason: iOS device tokens must be no more than 400"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_attributes_of_endpoints(sns: Sns, attributes: dict[str, str], reason: str) -> None:
    app = application(sns, platform="APNS")
    kept = device(sns, app, "kept")
    others = {name: value for name, value in attributes.items() if name != "Token"}
    members = {"PlatformApplicationArn": app, "Token": attributes.get("Token", "token")}
    refused = sns.refusal("CreatePlatformEndpoint", **members, Attributes=others)
    invalid(refused, reason)
    refused = sns.refusal("SetEndpointAttributes", EndpointArn=kept, Attributes=attributes)
    invalid(refused, reason)
    assert shown(sns, kept) == {"Enabled": "true", "Token": "kept"}
    assert len(devices(sns, app)) == 1


def test_the_longest_token_and_user_data_are_taken(sns: Sns) -> None:
    """Also by the index on tokens, whose entries have a limit of their own."""
    app = application(sns)
    token = "".join(f"{number * 7919 % 99991:05}" for number in range(409)) + "abc"
    assert shown(sns, device(sns, app, token, CustomUserData="é" * 1024))["Token"] == token
    members = {"PlatformApplicationArn": app, "Token": token + "x"}
    invalid(sns.refusal("CreatePlatformEndpoint", **members), "Token Reason")


def test_attributes_of_an_endpoint_are_merged(sns: Sns) -> None:
    arn = device(sns, application(sns), "old", CustomUserData="data")
    wanted = {"Enabled": "false", "Token": "new", "CustomUserData": "data"}
    changes = {"Token": "new", "Enabled": "FALSE"}
    sns.call("SetEndpointAttributes", EndpointArn=arn, Attributes=changes)
    assert shown(sns, arn) == wanted
    sns.call("SetEndpointAttributes", EndpointArn=arn, Attributes={"CustomUserData": ""})
    assert shown(sns, arn) == {"Enabled": "false", "Token": "new"}
    refused = sns.refusal("SetEndpointAttributes", EndpointArn=arn, Attributes={})
    assert refused.code == "ValidationError"


def test_arns_of_no_endpoint(sns: Sns) -> None:
    arn = device(sns, application(sns, platform="APNS"))
    nobody = sns.topic_arn(NO_DEVICE)
    for wrong in (arn.replace("phones", "other"), arn.replace("APNS", "GCM"), nobody):
        for action, members in (
            ("GetEndpointAttributes", {}),
            ("SetEndpointAttributes", {"Attributes": {"Enabled": "true"}}),
        ):
            refused = sns.refusal(action, EndpointArn=wrong, **members)
            assert_refused(refused, "NotFound", "Endpoint does not exist")
        sns.call("DeleteEndpoint", EndpointArn=wrong)
    for wrong in (arn[:-1], arn.upper()[:-36]):
        refused = sns.refusal("GetEndpointAttributes", EndpointArn=wrong)
        assert refused.code in {"InvalidParameter", "NotFound"}
    text = "EndpointArn Reason: An ARN must have at least 6"
    invalid(sns.refusal("DeleteEndpoint", EndpointArn="nonsense"), text)
    assert shown(sns, arn)["Token"] == "token"


def test_listings_have_pages_of_a_hundred(sns: Sns) -> None:
    apps = [application(sns, f"app-{number}") for number in range(101)]
    arns = [device(sns, apps[0], str(number)) for number in range(101)]
    numbers = [f"+1555{number:04}" for number in range(101)]
    for number in numbers:
        ask_page(sns, "PUT", f"/_admin/sms/opted-out/{number}")
    tokens: list[str] = []
    for action, members, name, wanted in (
        ("ListPlatformApplications", {}, "PlatformApplications.PlatformApplicationArn", apps),
        (
            "ListEndpointsByPlatformApplication",
            {"PlatformApplicationArn": apps[0]},
            "Endpoints.EndpointArn",
            arns,
        ),
        ("ListPhoneNumbersOptedOut", {}, "phoneNumbers", numbers),
    ):
        more = "nextToken" if "Phone" in action else "NextToken"
        page = sns.call(action, **members)
        rest = sns.call(action, **members, **{more: page[more]})
        listed, _, arn = name.partition(".")
        found = [one[arn] if arn else one for one in (*page[listed], *rest[listed])]
        assert (found, len(page[listed])) == (wanted, 100)
        assert more not in rest
        for token in ("x", "a" * 300, *tokens):
            refused = sns.refusal(action, **members, **{more: token})
            assert_refused(refused, "InvalidParameter", "Invalid parameter: NextToken")
        tokens.append(page[more])
    beyond = token_behind("applications", "9" * 18)
    assert sns.call("ListPlatformApplications", NextToken=beyond) == {"PlatformApplications": []}


def test_publish_to_an_endpoint(sns: Sns) -> None:
    app = application(sns)
    arn = device(sns, app)
    published = sns.call(
        "Publish",
        TargetArn=arn,
        Message='{"default": "plain", "GCM": "for Google"}',
        MessageStructure="json",
    )
    [message] = outbox(sns)
    assert message["message_id"] == published["MessageId"]
    assert (message["protocol"], message["destination"]) == ("application", arn)
    assert message["body"] == "for Google"
    sns.call("SetEndpointAttributes", EndpointArn=arn, Attributes={"Enabled": "false"})
    refused = sns.refusal("Publish", TargetArn=arn, Message="hello")
    assert (refused.status, refused.code) == (400, "EndpointDisabled")
    assert refused.text == "Endpoint is disabled"
    sns.call("SetEndpointAttributes", EndpointArn=arn, Attributes={"Enabled": "true"})
    changes = {"Enabled": "false"}
    sns.call("SetPlatformApplicationAttributes", PlatformApplicationArn=app, Attributes=changes)
    refused = sns.refusal("Publish", TargetArn=arn, Message="hello")
    assert (refused.status, refused.code) == (400, "PlatformApplicationDisabled")
    assert len(outbox(sns)) == 1


def test_publish_to_no_endpoint(sns: Sns) -> None:
    app, nobody = application(sns), sns.topic_arn(NO_DEVICE)
    for arn in (f"{app}:endpoint/", "a:b:c:d:endpoint/e:f", nobody, f"{nobody}/a"):
        refused = sns.refusal("Publish", TargetArn=arn, Message="hello")
        invalid(refused, "TargetArn Reason: No endpoint found for the target arn specified")
    refused = sns.refusal("Publish", TargetArn="nonsense", Message="hello")
    invalid(refused, "TargetArn Reason: An ARN must have at least 6")


def test_sms_attributes(sns: Sns) -> None:
    wanted = {
        "DefaultSMSType": "Transactional",
        "DefaultSenderID": "Sender1",
        "DeliveryStatusIAMRole": "arn:aws:iam::111122223333:role/r",
        "DeliveryStatusSuccessSamplingRate": "100",
        "UsageReportS3Bucket": "reports",
    }
    for name, value in wanted.items():
        assert sns.call("SetSMSAttributes", attributes={name: value}) == {}
    found = sns.call("GetSMSAttributes")["attributes"]
    assert found == wanted | {"MonthlySpendLimit": "1"}
    asked = sns.call("GetSMSAttributes", attributes=["DefaultSenderID", "Unknown"])
    assert asked == {"attributes": {"DefaultSenderID": "Sender1"}}
    sns.call("SetSMSAttributes", attributes={"DefaultSMSType": "", "MonthlySpendLimit": "9"})
    found = sns.call("GetSMSAttributes")["attributes"]
    assert ("DefaultSMSType" in found, found["MonthlySpendLimit"]) == (False, "9")
    with sns.other(region="eu-west-1") as elsewhere:
        assert elsewhere.call("GetSMSAttributes") == {"attributes": {"MonthlySpendLimit": "1"}}


def test_sms_attributes_that_are_refused(sns: Sns) -> None:
    for name, value in (
        ("DefaultSMSType", "Spam"),
        ("DefaultSenderID", "123"),
        ("DefaultSenderID", "a" * 12),
        ("DeliveryStatusSuccessSamplingRate", "101"),
        ("MonthlySpendLimit", "-1"),
        ("MonthlySpendLimit", "1\n"),
        ("Colour", "blue"),
    ):
        changes = {"UsageReportS3Bucket": "reports", name: value}
        refused = sns.refusal("SetSMSAttributes", attributes=changes)
        text = "is not a valid attribute" if name == "Colour" else "is invalid"
        assert (refused.status, refused.code) == (400, "InvalidParameter")
        assert refused.text == f"{name} {text}"
    assert sns.call("GetSMSAttributes") == {"attributes": {"MonthlySpendLimit": "1"}}


def test_numbers_opt_out_by_the_page_and_in_by_the_api(sns: Sns) -> None:
    named = {"phoneNumber": NUMBER}
    bare = {"phoneNumber": NUMBER[1:]}
    assert sns.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": False}
    for _ in range(2):
        answer = ask_page(sns, "PUT", f"/_admin/sms/opted-out/{NUMBER}")
        assert (answer.status, json.loads(answer.body)["opted_out"]) == (200, True)
    for members in (named, bare):
        assert sns.call("CheckIfPhoneNumberIsOptedOut", **members) == {"isOptedOut": True}
    with sns.other(region="eu-west-1") as elsewhere:
        assert elsewhere.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": False}
    for number in (NUMBER, NUMBER[1:]):
        refused = sns.refusal("Publish", PhoneNumber=number, Message="hello")
        assert (refused.status, refused.code) == (400, "OptedOut")
    assert sns.call("ListPhoneNumbersOptedOut") == {"phoneNumbers": [NUMBER]}
    for _ in range(2):
        assert sns.call("OptInPhoneNumber", **bare) == {}
    assert sns.call("ListPhoneNumbersOptedOut") == {"phoneNumbers": []}
    ask_page(sns, "PUT", "/_admin/sms/opted-out/15550100")
    assert sns.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": True}
    answer = ask_page(sns, "DELETE", "/_admin/sms/opted-out/%2B15550100")
    assert (answer.status, json.loads(answer.body)["opted_out"]) == (200, False)
    assert sns.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": False}


def test_malformed_numbers(sns: Sns) -> None:
    for number in (
        "hello",
        "",
        "+",
        "5",
        "+0123456",
        "+1555010012345678",
        "tel:+1555",
        "+1 555 0100",
        "+1\u0665\u0665",
    ):
        for action, member in (
            ("CheckIfPhoneNumberIsOptedOut", "phoneNumber"),
            ("OptInPhoneNumber", "phoneNumber"),
            ("DeleteSMSSandboxPhoneNumber", "PhoneNumber"),
        ):
            refused = sns.refusal(action, **{member: number})
            invalid(refused, "PhoneNumber Reason: input incorrectly formatted")
        refused = sns.refusal("Publish", PhoneNumber=number, Message="x")
        if number:
            invalid(refused, f"PhoneNumber Reason: {number} is not valid to publish to")


def test_life_of_a_sandbox_number(sns: Sns) -> None:
    assert sns.call("GetSMSSandboxAccountStatus") == {"IsInSandbox": False}
    assert sns.call("ListOriginationNumbers") == {"PhoneNumbers": []}
    named = {"PhoneNumber": NUMBER}
    assert sns.call("CreateSMSSandboxPhoneNumber", **named, LanguageCode="en-GB") == {}
    listed = [named | {"Status": "Pending"}]
    assert sns.call("ListSMSSandboxPhoneNumbers", MaxResults=10) == {"PhoneNumbers": listed}
    [message] = outbox(sns)
    assert (message["kind"], message["destination"]) == ("VerificationCode", NUMBER)
    [password] = re.findall("[0-9]{6}", message["body"])
    wrong = str((int(password) + 1) % 1_000_000).zfill(6)
    refused = sns.refusal("VerifySMSSandboxPhoneNumber", **named, OneTimePassword=wrong)
    assert (refused.status, refused.code) == (400, "VerificationException")
    assert sns.call("VerifySMSSandboxPhoneNumber", **named, OneTimePassword=password) == {}
    listed = [named | {"Status": "Verified"}]
    assert sns.call("ListSMSSandboxPhoneNumbers") == {"PhoneNumbers": listed}
    assert sns.call("DeleteSMSSandboxPhoneNumber", **named) == {}
    refused = sns.refusal("DeleteSMSSandboxPhoneNumber", **named)
    assert (refused.status, refused.code) == (404, "ResourceNotFound")


def sandbox(sns: Sns, **members: Any) -> list[tuple[str, str]]:
    """Return numbers and their states."""
    page = sns.call("ListSMSSandboxPhoneNumbers", **members)
    return [(one["PhoneNumber"], one["Status"]) for one in page["PhoneNumbers"]]


def test_a_new_password_replaces_the_old_one_until_the_number_is_verified(sns: Sns) -> None:
    named = {"PhoneNumber": NUMBER}
    sns.call("CreateSMSSandboxPhoneNumber", **named)
    sns.call("CreateSMSSandboxPhoneNumber", **named, LanguageCode="de-DE")
    first, second = (re.findall("[0-9]{6}", one["body"])[0] for one in outbox(sns))
    if first != second:
        refused = sns.refusal("VerifySMSSandboxPhoneNumber", **named, OneTimePassword=first)
        assert refused.code == "VerificationException"
    sns.call("VerifySMSSandboxPhoneNumber", **named, OneTimePassword=second)
    sns.call("CreateSMSSandboxPhoneNumber", **named)
    assert len(outbox(sns)) == 2
    assert sandbox(sns) == [(NUMBER, "Verified")]


def test_what_the_sandbox_refuses(sns: Sns) -> None:
    named = {"PhoneNumber": NUMBER}
    refused = sns.refusal("CreateSMSSandboxPhoneNumber", **named, LanguageCode="tlh")
    assert (refused.code, "LanguageCode" in refused.text) == ("InvalidParameter", True)
    for password in ("", "1234", "123456789", "abcdef", "\u0661" * 6):
        refused = sns.refusal("VerifySMSSandboxPhoneNumber", **named, OneTimePassword=password)
        assert (refused.code, "OneTimePassword" in refused.text) == ("InvalidParameter", True)
    refused = sns.refusal("VerifySMSSandboxPhoneNumber", **named, OneTimePassword="123456")
    assert (refused.status, refused.code) == (404, "ResourceNotFound")
    ask_page(sns, "PUT", f"/_admin/sms/opted-out/{NUMBER}")
    assert sns.refusal("CreateSMSSandboxPhoneNumber", **named).code == "OptedOut"
    assert (sandbox(sns), outbox(sns)) == ([], [])


def test_the_sandbox_is_listed_in_pages(sns: Sns) -> None:
    numbers = [f"+1555{number:04}" for number in range(5)]
    for number in numbers:
        sns.call("CreateSMSSandboxPhoneNumber", PhoneNumber=number)
    with sns.other(region="eu-west-1") as elsewhere:
        named = {"PhoneNumber": numbers[0]}
        assert elsewhere.refusal("DeleteSMSSandboxPhoneNumber", **named).status == 404
    pages: list[list[str]] = []
    more: dict[str, str] = {}
    while not pages or more:
        page = sns.call("ListSMSSandboxPhoneNumbers", MaxResults=2, **more)
        pages.append([one["PhoneNumber"] for one in page["PhoneNumbers"]])
        more = {"NextToken": page["NextToken"]} if "NextToken" in page else {}
    assert pages == [numbers[:2], numbers[2:4], numbers[4:]]
    sizes = [("ListSMSSandboxPhoneNumbers", size) for size in (0, 101, -(2**31))]
    for action, size in (*sizes, ("ListOriginationNumbers", 31)):
        refused = sns.refusal(action, MaxResults=size)
        assert (refused.code, "MaxResults" in refused.text) == ("InvalidParameter", True)
