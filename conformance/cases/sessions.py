"""STS: temporary credentials, whose they are, and that every client signs with them."""

from __future__ import annotations

from typing import Any

from conformance.casebook import Cases
from conformance.driving import Client, Refused, expect, expect_refusal

CASES = Cases()
case = CASES.case


def _within(client: Client, made: dict[str, Any]) -> Any:
    found = made["Credentials"]
    return client.as_another(
        AWS_ACCESS_KEY_ID=found["AccessKeyId"],
        AWS_SECRET_ACCESS_KEY=found["SecretAccessKey"],
        AWS_SESSION_TOKEN=found["SessionToken"],
    )


def _role(client: Client, session: str) -> dict[str, str]:
    account = client.identity()["Account"]
    return {"RoleArn": f"arn:aws:iam::{account}:role/reader", "RoleSessionName": session}


@case(brief=True)
def a_role_session_is_begun(client: Client) -> None:
    wanted = _role(client, "ada")
    made = client.sts("AssumeRole", **wanted, DurationSeconds=900)
    account = wanted["RoleArn"].split(":")[4]
    arn = f"arn:aws:sts::{account}:assumed-role/reader/ada"
    expect(made["AssumedRoleUser"]["Arn"], arn)
    key = made["Credentials"]["AccessKeyId"]
    expect(client.sts("GetAccessKeyInfo", AccessKeyId=key)["Account"], account)
    with _within(client, made) as session:
        expect(session.identity()["Arn"], arn)
        url = session.queue()
        session.call("SendMessage", QueueUrl=url, MessageBody="x")
        expect([one["Body"] for one in session.receive(url)], ["x"])


@case(brief=True)
def a_user_session_is_begun(client: Client) -> None:
    made = client.sts("GetSessionToken")
    with _within(client, made) as session:
        expect(session.identity()["Arn"], client.identity()["Arn"])


@case(brief=True)
def a_web_identity_session_is_begun_where_nothing_is_verified(client: Client) -> None:
    wanted = _role(client, "web") | {"WebIdentityToken": "any token"}
    try:
        made = client.sts("AssumeRoleWithWebIdentity", **wanted)
    except Refused as refused:
        expect_refusal(refused, "InvalidIdentityToken")
        return
    with _within(client, made) as session:
        expect(session.identity()["Arn"].endswith(":assumed-role/reader/web"), True)
