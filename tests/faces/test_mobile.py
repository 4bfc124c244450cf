"""SNS: mobile push and SMS as clients see them, on both wires."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.faces.clients import authorization
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.sns_client import Sns

CREDENTIALS = {"PlatformCredential": "secret key", "PlatformPrincipal": "secret certificate"}
NUMBER = "+15550100"


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


def application(sns: Sns, name: str = "phones", platform: str = "GCM") -> str:
    members = {"Name": name, "Platform": platform, "Attributes": CREDENTIALS}
    arn: str = sns.call("CreatePlatformApplication", **members)["PlatformApplicationArn"]
    return arn


def device(sns: Sns, app: str, token: str = "token", **members: Any) -> str:
    members = {"PlatformApplicationArn": app, "Token": token} | members
    arn: str = sns.call("CreatePlatformEndpoint", **members)["EndpointArn"]
    return arn


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


def test_listings_have_pages(sns: Sns) -> None:
    app = application(sns)
    for number in range(101):
        device(sns, app, str(number))
    named = {"PlatformApplicationArn": app}
    page = sns.call("ListEndpointsByPlatformApplication", **named)
    rest = sns.call("ListEndpointsByPlatformApplication", **named, NextToken=page["NextToken"])
    assert (len(page["Endpoints"]), len(rest["Endpoints"])) == (100, 1)
    assert "NextToken" not in rest
    for action in ("ListPlatformApplications", "ListPhoneNumbersOptedOut"):
        token = {"nextToken" if "Phone" in action else "NextToken": page["NextToken"]}
        refused = sns.refusal(action, **token)
        assert (refused.status, refused.text) == (400, "Invalid parameter: NextToken")


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
    for arn in (f"{application(sns)}:endpoint/", "a:b:c:d:endpoint/e:f"):
        refused = sns.refusal("Publish", TargetArn=arn, Message="hello")
        assert (refused.status, refused.code) == (400, "InvalidParameter")
        assert refused.text == (
            "Invalid parameter: TargetArn Reason: No endpoint found for the target arn specified"
        )


def test_sms_attributes(sns: Sns) -> None:
    changes = {"DefaultSMSType": "Promotional", "DefaultSenderID": "Hauke"}
    assert sns.call("SetSMSAttributes", attributes=changes) == {}
    wanted = changes | {"MonthlySpendLimit": "1"}
    assert sns.call("GetSMSAttributes") == {"attributes": wanted}
    asked = sns.call("GetSMSAttributes", attributes=["DefaultSenderID"])
    assert asked == {"attributes": {"DefaultSenderID": "Hauke"}}
    refused = sns.refusal("SetSMSAttributes", attributes={"DefaultSMSType": "Spam"})
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert refused.text == "DefaultSMSType is invalid"


def test_numbers_opt_out_by_the_page_and_in_by_the_api(sns: Sns) -> None:
    named = {"phoneNumber": NUMBER}
    assert sns.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": False}
    answer = ask_page(sns, "PUT", f"/_admin/sms/opted-out/{NUMBER}")
    assert (answer.status, json.loads(answer.body)["opted_out"]) == (200, True)
    assert sns.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": True}
    assert sns.call("ListPhoneNumbersOptedOut") == {"phoneNumbers": [NUMBER]}
    assert sns.call("OptInPhoneNumber", **named) == {}
    assert sns.call("ListPhoneNumbersOptedOut") == {"phoneNumbers": []}
    ask_page(sns, "PUT", "/_admin/sms/opted-out/15550100")
    assert sns.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": True}
    answer = ask_page(sns, "DELETE", "/_admin/sms/opted-out/%2B15550100")
    assert (answer.status, json.loads(answer.body)["opted_out"]) == (200, False)
    assert sns.call("CheckIfPhoneNumberIsOptedOut", **named) == {"isOptedOut": False}


def test_malformed_number(sns: Sns) -> None:
    refused = sns.refusal("OptInPhoneNumber", phoneNumber="hello")
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert refused.text == "Invalid parameter: PhoneNumber Reason: input incorrectly formatted"


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
