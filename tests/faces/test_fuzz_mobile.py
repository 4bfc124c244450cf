"""Mobile push and SMS: requests that nobody would write get no error of ours and leave no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.gateway.faces.aws.aws_bindings import bindings
from queuegate.gateway.faces.aws.sns import mobile_push, sns_sms
from tests.faces.fuzzing import (
    FUZZ,
    TEXT,
    VALUES,
    FuzzTarget,
    encoded,
    sns_form,
    sns_json,
    with_one_odd,
)
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.protocol import oracle

ACTIONS = sorted(bindings("sns", mobile_push, sns_sms))
Texts = st.SearchStrategy[str]
ENABLED = st.sampled_from(["true", "FALSE", "maybe"])
OF_ENDPOINTS: dict[str, Texts] = {
    "Enabled": ENABLED,
    "Token": st.sampled_from(["token", "other", "a" * 3000]) | TEXT,
    "CustomUserData": st.sampled_from(["data", "a" * 3000]) | TEXT,
}
OF_APPLICATIONS: dict[str, Texts] = {
    "Enabled": ENABLED,
    "PlatformCredential": st.sampled_from(["key", "\x00"]) | TEXT,
    "PlatformPrincipal": st.just("certificate"),
}
OF_SMS: dict[str, Texts] = {
    "DefaultSMSType": st.sampled_from(["Promotional", "", "Spam"]),
    "DefaultSenderID": st.sampled_from(["Sender", "", "123"]),
}
NUMBERS = st.sampled_from(["+15550100", "15550101", "+1\n"])


def attributes_of(action: str) -> st.SearchStrategy[dict[str, str]]:
    """One or two attributes that the action knows, now and then one that it does not."""
    kinds = OF_SMS if "SMS" in action else OF_ENDPOINTS
    if action.endswith(("PlatformApplication", "PlatformApplicationAttributes")):
        kinds = OF_APPLICATIONS
    known = st.fixed_dictionaries({}, optional=kinds)
    return known | known | known.map(lambda attributes: {**attributes, "Colour": "blue"})


class Target(FuzzTarget):
    """An application with an endpoint, and two phone numbers."""

    def __init__(self, server: Server) -> None:
        self.sns = Sns("json", server.url)
        self.app = f"arn:aws:sns:us-east-1:{self.sns.account}:app/GCM/phones"
        self.endpoint = ""
        super().__init__(self.sns)

    def prepare(self) -> None:
        """Make all of it as it was in the beginning."""
        self.sns.call("DeletePlatformApplication", PlatformApplicationArn=self.app)
        named = {"Name": "phones", "Platform": "GCM", "Attributes": {"PlatformCredential": "key"}}
        self.sns.call("CreatePlatformApplication", **named)
        members = {"PlatformApplicationArn": self.app, "Token": "token"}
        self.endpoint = self.sns.call("CreatePlatformEndpoint", **members)["EndpointArn"]
        self.sns.call("CreateSMSSandboxPhoneNumber", PhoneNumber="+15550100")
        self.post({}, b"", "/_admin/outbox", "DELETE")

    def state(self) -> list[Any]:
        found = [
            self.sns.call(action)
            for action in (
                "ListPlatformApplications",
                "GetSMSAttributes",
                "ListPhoneNumbersOptedOut",
                "ListSMSSandboxPhoneNumbers",
            )
        ]
        for one in found[0]["PlatformApplications"]:
            arn = one["PlatformApplicationArn"]
            listed = self.sns.ask(
                "ListEndpointsByPlatformApplication", {"PlatformApplicationArn": arn}
            )
            found.append(json.loads(listed.body))
        found.append(json.loads(self.post({}, b"", "/_admin/outbox?limit=1000", "GET").body))
        return found

    def arns(self) -> st.SearchStrategy[str]:
        known = st.sampled_from([self.app, self.endpoint, self.app + "/a", "a:b:c:d:e:f", "x"])
        return known | known.map(lambda arn: arn.replace("phones", "\x00")) | TEXT

    def members(self, action: str) -> st.SearchStrategy[dict[str, Any]]:
        """Members of the action: all plausible, or all but one, which may be anything."""
        shape = oracle.model_of_query("sns").operation_model(action).input_shape
        plausible: dict[str, st.SearchStrategy[Any]] = {
            "Name": st.sampled_from(["phones", "tablets"]),
            "PlatformApplicationArn": st.just(self.app) | self.arns(),
            "EndpointArn": st.just(self.endpoint) | self.arns(),
            "Attributes": attributes_of(action),
            "attributes": attributes_of(action),
            "Platform": st.sampled_from(["GCM", "APNS"]),
            "PhoneNumber": NUMBERS,
            "phoneNumber": NUMBERS,
            "LanguageCode": st.just("en-US"),
            "OneTimePassword": st.just("123456"),
            "Token": st.sampled_from(["token", "other"]) | TEXT,
            "CustomUserData": TEXT,
            "NextToken": st.just(""),
            "nextToken": st.just(""),
            "MaxResults": st.integers(1, 30),
        }
        likely = st.fixed_dictionaries({name: plausible[name] for name in shape.members})
        own = {name: oracle.values(member, TEXT) | VALUES for name, member in shape.members.items()}
        return with_one_odd(likely, own)


@pytest.fixture
def target(server: Server) -> Iterator[Target]:
    target = Target(server)
    yield target
    target.close()


@FUZZ
@given(data=st.data())
def test_json_members_of_any_kind(target: Target, data: st.DataObject) -> None:
    target.prepare()
    action = data.draw(st.sampled_from(ACTIONS))
    members = data.draw(target.members(action))
    target.assert_sound(sns_json(action), json.dumps(encoded(members)).encode())


@FUZZ
@given(data=st.data())
def test_forms_of_any_kind(target: Target, data: st.DataObject) -> None:
    target.prepare()
    action = data.draw(st.sampled_from(ACTIONS))
    form = {"Action": action, "Version": "2010-03-31"}
    for name, value in data.draw(target.members(action)).items():
        form |= sns_form(encoded(value), name)
    body = urlencode(form, errors="surrogatepass").encode()
    target.assert_sound({"Content-Type": "application/x-www-form-urlencoded"}, body)
