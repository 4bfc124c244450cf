"""SNS: mobile push and text messages. Nothing is sent: all is kept and answered."""

from __future__ import annotations

import json
import secrets

from conformance.casebook import Cases
from conformance.driving import Client, expect, expect_refusal

CASES = Cases()
case = CASES.case


def _number() -> str:
    return f"+1425555{secrets.randbelow(10**4):04}"


def _application(client: Client, name: str) -> str:
    attributes = {"PlatformCredential": "key", "PlatformPrincipal": "principal"}
    members = {"Name": name, "Platform": "GCM", "Attributes": attributes}
    arn: str = client.sns("CreatePlatformApplication", **members)["PlatformApplicationArn"]
    return arn


@case(brief=True)
def a_platform_application_and_its_endpoints(client: Client) -> None:
    name = f"app-{secrets.token_hex(4)}"
    arn = _application(client, name)
    expect(arn.endswith(f":app/GCM/{name}"), True, arn)
    changed = {"EventEndpointCreated": "arn:aws:sns:us-east-1:000000000000:t", "Enabled": "true"}
    members = {"PlatformApplicationArn": arn}
    expect(client.sns("SetPlatformApplicationAttributes", Attributes=changed, **members), {})
    found = client.sns("GetPlatformApplicationAttributes", **members)["Attributes"]
    expect({key: found.get(key) for key in changed}, changed)
    listed = client.sns("ListPlatformApplications")["PlatformApplications"]
    expect(arn in [item["PlatformApplicationArn"] for item in listed], True, "listed")

    device = client.sns("CreatePlatformEndpoint", Token="t1", CustomUserData="me", **members)
    endpoint = device["EndpointArn"]
    expect(endpoint.rpartition("/")[0], arn.replace(":app/", ":endpoint/"))
    wanted = {"Enabled": "true", "Token": "t1", "CustomUserData": "me"}
    expect(client.sns("GetEndpointAttributes", EndpointArn=endpoint)["Attributes"], wanted)
    changed = {"Token": "t2", "Enabled": "false"}
    expect(client.sns("SetEndpointAttributes", EndpointArn=endpoint, Attributes=changed), {})
    [listed] = client.sns("ListEndpointsByPlatformApplication", **members)["Endpoints"]
    expect(listed, {"EndpointArn": endpoint, "Attributes": wanted | changed})

    expect(client.sns("DeleteEndpoint", EndpointArn=endpoint), {})
    refused = client.sns_refusal("GetEndpointAttributes", EndpointArn=endpoint)
    text = "Endpoint does not exist"
    expect_refusal(refused, "NotFound", text=text, status=404, exception="NotFoundException")
    expect(client.sns("DeletePlatformApplication", **members), {})
    refused = client.sns_refusal("GetPlatformApplicationAttributes", **members)
    text = "PlatformApplication does not exist"
    expect_refusal(refused, "NotFound", text=text, status=404, exception="NotFoundException")


@case()
def publish_to_an_endpoint(client: Client) -> None:
    arn = _application(client, f"app-{secrets.token_hex(4)}")
    members = {"PlatformApplicationArn": arn, "Token": "t1"}
    endpoint = client.sns("CreatePlatformEndpoint", **members)["EndpointArn"]
    expect(client.sns("CreatePlatformEndpoint", **members)["EndpointArn"], endpoint)
    refused = client.sns_refusal("CreatePlatformEndpoint", CustomUserData="other", **members)
    text = (
        f"Invalid parameter: Token Reason: Endpoint {endpoint} already exists with the same Token, "
        "but different attributes."
    )
    expect_refusal(refused, "InvalidParameter", text=text)
    message = json.dumps({"default": "d", "GCM": '{"data":{"a":1}}'})
    structured = {"MessageStructure": "json", "Message": message}
    expect(set(client.sns("Publish", TargetArn=endpoint, **structured)), {"MessageId"})
    topic = client.topic()
    client.sns("Subscribe", TopicArn=topic, Protocol="application", Endpoint=endpoint)
    expect(set(client.sns("Publish", TopicArn=topic, Message="m")), {"MessageId"})
    disabled = {"Enabled": "false"}
    client.sns("SetEndpointAttributes", EndpointArn=endpoint, Attributes=disabled)
    refused = client.sns_refusal("Publish", TargetArn=endpoint, Message="m")
    expect_refusal(refused, "EndpointDisabled", exception="EndpointDisabledException")


@case(brief=True)
def attributes_of_text_messages(client: Client) -> None:
    attributes = {"DefaultSMSType": "Transactional", "DefaultSenderID": "Queuegate"}
    expect(client.sns("SetSMSAttributes", attributes=attributes), {})
    found = client.sns("GetSMSAttributes")["attributes"]
    expect({name: found.get(name) for name in attributes}, attributes)
    members = {"attributes": ["DefaultSMSType"]}
    found = client.sns("GetSMSAttributes", **members)["attributes"]
    expect(found, {"DefaultSMSType": "Transactional"})
    refused = client.sns_refusal("SetSMSAttributes", attributes={"DefaultSMSType": "x"})
    expect_refusal(refused, "InvalidParameter", exception="InvalidParameterException")


@case(brief=True)
def phone_numbers_that_opted_out(client: Client) -> None:
    number = _number()
    found = client.sns("CheckIfPhoneNumberIsOptedOut", phoneNumber=number)
    expect(found, {"isOptedOut": False})
    listed = client.sns("ListPhoneNumbersOptedOut").get("phoneNumbers", [])
    expect(number in listed, False)
    expect(client.sns("OptInPhoneNumber", phoneNumber=number), {})
    expect(set(client.sns("Publish", PhoneNumber=number, Message="m")), {"MessageId"})


@case(brief=True)
def the_sandbox_of_text_messages(client: Client) -> None:
    number = _number()
    expect(set(client.sns("GetSMSSandboxAccountStatus")), {"IsInSandbox"})
    members = {"PhoneNumber": number, "LanguageCode": "en-GB"}
    expect(client.sns("CreateSMSSandboxPhoneNumber", **members), {})
    listed = client.sns("ListSMSSandboxPhoneNumbers", MaxResults=100)["PhoneNumbers"]
    expect({"PhoneNumber": number, "Status": "Pending"} in listed, True, "listed")
    members = {"PhoneNumber": number, "OneTimePassword": "99999"}
    refused = client.sns_refusal("VerifySMSSandboxPhoneNumber", **members)
    exception = "VerificationException"
    expect_refusal(refused, "VerificationException", exception=exception)
    expect(client.sns("DeleteSMSSandboxPhoneNumber", PhoneNumber=number), {})
    refused = client.sns_refusal("DeleteSMSSandboxPhoneNumber", PhoneNumber=number)
    exception = "ResourceNotFoundException"
    expect_refusal(refused, "ResourceNotFound", status=404, exception=exception)
    listed = client.sns("ListOriginationNumbers", MaxResults=10).get("PhoneNumbers", [])
    expect(isinstance(listed, list), True)
