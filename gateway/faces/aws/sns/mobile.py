"""SNS actions of mobile push and SMS: action -> binding."""

from __future__ import annotations

from gateway.faces.aws.face import Binding, Call, Members
from gateway.operations.topics import push_endpoints, push_platforms, sms, sms_sandbox


async def create_platform_application(call: Call) -> Members:
    members = call.members
    request = push_platforms.CreatePlatformApplication(
        members.get("Name"), members.get("Platform"), members.get("Attributes")
    )
    arn = await push_platforms.create_platform_application(call.engine, call.caller, request)
    return {"PlatformApplicationArn": arn}


async def delete_platform_application(call: Call) -> None:
    arn = call.members.get("PlatformApplicationArn")
    await push_platforms.delete_platform_application(call.engine, call.caller, arn)


async def get_platform_application_attributes(call: Call) -> Members:
    arn = call.members.get("PlatformApplicationArn")
    attributes = await push_platforms.get_platform_application_attributes(
        call.engine, call.caller, arn
    )
    return {"Attributes": attributes}


async def set_platform_application_attributes(call: Call) -> None:
    members = call.members
    request = push_platforms.SetPlatformApplicationAttributes(
        members.get("PlatformApplicationArn"), members.get("Attributes")
    )
    await push_platforms.set_platform_application_attributes(call.engine, call.caller, request)


async def list_platform_applications(call: Call) -> Members:
    token = call.members.get("NextToken")
    page = await push_platforms.list_platform_applications(call.engine, call.caller, token)
    listed = [
        {
            "PlatformApplicationArn": application.arn,
            "Attributes": push_platforms.visible_attributes(application),
        }
        for application in page.applications
    ]
    return {"PlatformApplications": listed, "NextToken": page.next_token}


async def create_platform_endpoint(call: Call) -> Members:
    members = call.members
    request = push_endpoints.CreatePlatformEndpoint(
        members.get("PlatformApplicationArn"),
        members.get("Token"),
        members.get("CustomUserData"),
        members.get("Attributes") or {},
    )
    arn = await push_endpoints.create_platform_endpoint(call.engine, call.caller, request)
    return {"EndpointArn": arn}


async def delete_endpoint(call: Call) -> None:
    arn = call.members.get("EndpointArn")
    await push_endpoints.delete_endpoint(call.engine, call.caller, arn)


async def get_endpoint_attributes(call: Call) -> Members:
    arn = call.members.get("EndpointArn")
    attributes = await push_endpoints.get_endpoint_attributes(call.engine, call.caller, arn)
    return {"Attributes": attributes}


async def set_endpoint_attributes(call: Call) -> None:
    members = call.members
    request = push_endpoints.SetEndpointAttributes(
        members.get("EndpointArn"), members.get("Attributes")
    )
    await push_endpoints.set_endpoint_attributes(call.engine, call.caller, request)


async def list_endpoints_by_platform_application(call: Call) -> Members:
    members = call.members
    request = push_endpoints.ListEndpointsByPlatformApplication(
        members.get("PlatformApplicationArn"), members.get("NextToken")
    )
    page = await push_endpoints.list_endpoints_by_platform_application(
        call.engine, call.caller, request
    )
    listed = [
        {
            "EndpointArn": endpoint.arn,
            "Attributes": push_endpoints.visible_attributes(endpoint),
        }
        for endpoint in page.endpoints
    ]
    return {"Endpoints": listed, "NextToken": page.next_token}


async def set_sms_attributes(call: Call) -> Members:
    await sms.set_sms_attributes(call.engine, call.caller, call.members.get("attributes"))
    return {}


async def get_sms_attributes(call: Call) -> Members:
    names = call.members.get("attributes")
    return {"attributes": await sms.get_sms_attributes(call.engine, call.caller, names)}


async def check_if_phone_number_is_opted_out(call: Call) -> Members:
    number = call.members.get("phoneNumber")
    is_opted_out = await sms.check_if_phone_number_is_opted_out(call.engine, call.caller, number)
    return {"isOptedOut": is_opted_out}


async def list_phone_numbers_opted_out(call: Call) -> Members:
    token = call.members.get("nextToken")
    page = await sms.list_phone_numbers_opted_out(call.engine, call.caller, token)
    return {"phoneNumbers": page.phone_numbers, "nextToken": page.next_token}


async def opt_in_phone_number(call: Call) -> Members:
    await sms.opt_in_phone_number(call.engine, call.caller, call.members.get("phoneNumber"))
    return {}


async def list_origination_numbers(call: Call) -> Members:
    sms_sandbox.check_list_of_origination_numbers(call.members.get("MaxResults"))
    return {"PhoneNumbers": []}


async def get_sms_sandbox_account_status(call: Call) -> Members:
    return {"IsInSandbox": sms_sandbox.IS_IN_SANDBOX}


async def create_sms_sandbox_phone_number(call: Call) -> Members:
    members = call.members
    request = sms_sandbox.CreateSmsSandboxPhoneNumber(
        members.get("PhoneNumber"), members.get("LanguageCode")
    )
    await sms_sandbox.create_sms_sandbox_phone_number(call.engine, call.caller, request)
    return {}


async def verify_sms_sandbox_phone_number(call: Call) -> Members:
    members = call.members
    request = sms_sandbox.VerifySmsSandboxPhoneNumber(
        members.get("PhoneNumber"), members.get("OneTimePassword")
    )
    await sms_sandbox.verify_sms_sandbox_phone_number(call.engine, call.caller, request)
    return {}


async def delete_sms_sandbox_phone_number(call: Call) -> Members:
    number = call.members.get("PhoneNumber")
    await sms_sandbox.delete_sms_sandbox_phone_number(call.engine, call.caller, number)
    return {}


async def list_sms_sandbox_phone_numbers(call: Call) -> Members:
    members = call.members
    request = sms_sandbox.ListSmsSandboxPhoneNumbers(
        members.get("MaxResults"), members.get("NextToken")
    )
    page = await sms_sandbox.list_sms_sandbox_phone_numbers(call.engine, call.caller, request)
    listed = [
        {
            "PhoneNumber": number.phone_number,
            "Status": "Verified" if number.is_verified else "Pending",
        }
        for number in page.numbers
    ]
    return {"PhoneNumbers": listed, "NextToken": page.next_token}


BINDINGS: dict[str, Binding] = {
    "CreatePlatformApplication": create_platform_application,
    "DeletePlatformApplication": delete_platform_application,
    "GetPlatformApplicationAttributes": get_platform_application_attributes,
    "SetPlatformApplicationAttributes": set_platform_application_attributes,
    "ListPlatformApplications": list_platform_applications,
    "CreatePlatformEndpoint": create_platform_endpoint,
    "DeleteEndpoint": delete_endpoint,
    "GetEndpointAttributes": get_endpoint_attributes,
    "SetEndpointAttributes": set_endpoint_attributes,
    "ListEndpointsByPlatformApplication": list_endpoints_by_platform_application,
    "SetSMSAttributes": set_sms_attributes,
    "GetSMSAttributes": get_sms_attributes,
    "CheckIfPhoneNumberIsOptedOut": check_if_phone_number_is_opted_out,
    "ListPhoneNumbersOptedOut": list_phone_numbers_opted_out,
    "OptInPhoneNumber": opt_in_phone_number,
    "ListOriginationNumbers": list_origination_numbers,
    "GetSMSSandboxAccountStatus": get_sms_sandbox_account_status,
    "CreateSMSSandboxPhoneNumber": create_sms_sandbox_phone_number,
    "VerifySMSSandboxPhoneNumber": verify_sms_sandbox_phone_number,
    "DeleteSMSSandboxPhoneNumber": delete_sms_sandbox_phone_number,
    "ListSMSSandboxPhoneNumbers": list_sms_sandbox_phone_numbers,
}
