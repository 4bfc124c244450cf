"""Sources of credentials, their renewal and their secrecy."""

from __future__ import annotations

import pickle
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_connectors.errors import ConnectorError, NotNow, Refused
from spark_connectors.transport.aws import Connection, StaticCredentials, open_transport
from tests.spark.scripted_endpoint import HANG_UP, Request, ScriptedEndpoint, answer

QUEUE = "http://localhost/000000000000/q"
ROLE = "arn:aws:iam::123456789012:role/reader"
KINDS = pytest.mark.parametrize("kind", ["lean", "boto3"])


@pytest.fixture
def server() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(answer({})) as endpoint:
        yield endpoint


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The AWS configuration file, in an environment that holds no credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    path = tmp_path / "config"
    path.touch()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return path


def caller_of(request: Request) -> tuple[str, str | None]:
    """The access key that signed a request, and its session token."""
    found = re.search(r"Credential=([^/]+)/", request.headers["authorization"])
    assert found is not None
    return found[1], request.headers.get("x-amz-security-token")


@KINDS
def test_without_credentials_the_user_is_told_how_to_give_some(
    server: ScriptedEndpoint, config: Path, kind: str
) -> None:
    with pytest.raises(ConnectorError, match="AWS_ACCESS_KEY_ID") as failed:
        open_transport(Connection(server.url, kind=kind)).receive(QUEUE)
    assert not isinstance(failed.value, Refused | NotNow)
    assert server.requests == []


@KINDS
def test_credentials_of_the_environment(
    server: ScriptedEndpoint, config: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    open_transport(Connection(server.url, kind=kind)).receive(QUEUE)
    assert caller_of(server.requests[0]) == ("ENVKEY", "token")


@KINDS
def test_credentials_with_a_line_break_are_not_sent(
    server: ScriptedEndpoint, config: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVKEY\r\nX-Other: y")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(ConnectorError, match="line break"):
        open_transport(Connection(server.url, kind=kind)).receive(QUEUE)
    assert server.requests == []


@KINDS
def test_credentials_endpoint_and_region_of_a_profile(
    server: ScriptedEndpoint, config: Path, kind: str
) -> None:
    config.write_text(
        "[profile mine]\naws_access_key_id = PROFILEKEY\naws_secret_access_key = secret\n"
        f"region = ap-south-1\nendpoint_url = {server.url}\n"
    )
    open_transport(Connection(profile="mine", kind=kind)).receive(QUEUE)
    assert caller_of(server.requests[0]) == ("PROFILEKEY", None)
    assert "/ap-south-1/sqs/aws4_request" in server.requests[0].headers["authorization"]


@KINDS
def test_static_credentials_go_before_all_others(
    server: ScriptedEndpoint, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = StaticCredentials("STATICKEY", "secret", "token")
    open_transport(Connection(server.url, static=static, kind=kind)).receive(QUEUE)
    assert caller_of(server.requests[0]) == ("STATICKEY", "token")


@KINDS
def test_expiring_credentials_are_renewed(
    server: ScriptedEndpoint, config: Path, kind: str, tmp_path: Path
) -> None:
    """Each run of the process gives another key, which botocore renews at once: it ends soon."""
    program = tmp_path / "keys"
    program.write_text(
        f"#!{sys.executable}\n"
        "import datetime, json, pathlib\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'KEY{number}', 'Expiration':"
        " end.isoformat(), 'SecretAccessKey': f'secret{number}', 'SessionToken': f't{number}'}))\n"
    )
    program.chmod(stat.S_IRWXU)
    config.write_text(f"[profile rotating]\ncredential_process = {program}\n")
    transport = open_transport(Connection(server.url, "us-east-1", "rotating", kind=kind))
    for _ in range(3):
        transport.receive(QUEUE)
    callers = [caller_of(request) for request in server.requests]
    assert len(set(callers)) == 3
    assert all(key.replace("KEY", "t") == token for key, token in callers)


@KINDS
def test_a_process_that_gives_no_credentials(
    server: ScriptedEndpoint, config: Path, kind: str
) -> None:
    config.write_text("[profile broken]\ncredential_process = false\n")
    with pytest.raises(NotNow, match="redentials"):
        open_transport(Connection(server.url, profile="broken", kind=kind)).receive(QUEUE)


@KINDS
@pytest.mark.parametrize("static", [None, StaticCredentials("AKID", "secret")])
def test_a_role_is_assumed(
    server: ScriptedEndpoint,
    moto: str,
    kind: str,
    static: StaticCredentials | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto)
    connection = Connection(server.url, role_arn=ROLE, static=static, kind=kind)
    open_transport(connection).receive(QUEUE)
    key, token = caller_of(server.requests[0])
    assert key.startswith("ASIA")
    assert token


@KINDS
def test_a_role_has_the_session_name_asked_for(
    server: ScriptedEndpoint, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = (
        b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender'
        b"</Type><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"
    )
    with ScriptedEndpoint(answer(denied, "403 Forbidden", Content_Type="text/xml")) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        for name, expected in ((None, b"queuegate-spark"), ("nightly", b"nightly")):
            connection = Connection(server.url, role_arn=ROLE, role_session_name=name, kind=kind)
            with pytest.raises(Refused, match="not you") as refused:
                open_transport(connection).receive(QUEUE)
            assert refused.value.code == "AccessDenied"
            assert b"RoleSessionName=" + expected in sts.requests[-1].body
    assert server.requests == []


def test_sts_that_does_not_answer_is_not_for_ever(
    server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with ScriptedEndpoint(HANG_UP) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        with pytest.raises(NotNow, match="credentials"):
            open_transport(Connection(server.url, role_arn=ROLE, kind="lean")).receive(QUEUE)


@KINDS
def test_a_gateway_needs_no_region(
    server: ScriptedEndpoint, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    open_transport(Connection(server.url, kind=kind)).receive(QUEUE)
    assert "/us-east-1/sqs/" in server.requests[0].headers["authorization"]


def test_a_connection_travels_and_shows_no_secrets() -> None:
    connection = Connection("http://q", static=StaticCredentials("AKID", "s3cret", "t0ken"))
    copy = pickle.loads(pickle.dumps(connection))
    assert copy == connection
    assert copy.static.secret_access_key == "s3cret"
    for text in (repr(copy), str(copy), f"{copy}", repr(copy.static), str(copy._asdict())):
        assert "AKID" in text
        assert "s3cret" not in text
        assert "t0ken" not in text


@pytest.mark.parametrize("program", ["spark_connectors.transport.aws"])
def test_importing_the_package_imports_no_aws_library(program: str) -> None:
    code = f"import sys, {program}; print([n for n in sys.modules if n.startswith('boto')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
