"""SNS actions of mobile push: action -> binding."""

from __future__ import annotations

from gateway.faces.aws.face import Binding, Call, Members
from gateway.operations.topics import push_endpoints, push_platforms


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
}
