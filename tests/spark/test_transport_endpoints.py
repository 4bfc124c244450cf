"""Targets of calls: every way to name an endpoint, compared with botocore."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import botocore.session
import pytest
from botocore.config import Config

from spark_connectors.errors import ConnectorError
from spark_connectors.transport.aws import Connection, is_aws, open_transport
from spark_connectors.transport.aws.aws_sessions import (
    SERVICES,
    configured,
    is_aws_host,
    kind_for,
    open_session,
)
from spark_connectors.transport.aws.lean import LeanCarrier
from spark_connectors.transport.http.http_connections import parse_endpoint

VARIABLES = {
    "global": {"AWS_ENDPOINT_URL": "http://all:1"},
    "sqs": {"AWS_ENDPOINT_URL_SQS": "http://sqs:2"},
    "sns": {"AWS_ENDPOINT_URL_SNS": "https://sns:3/path"},
    "both": {"AWS_ENDPOINT_URL_SNS": "http://sns:3", "AWS_ENDPOINT_URL": "http://all:1"},
    "ignored": {"AWS_ENDPOINT_URL": "http://a:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
    "empty": {"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_SQS": ""},
    "none": {},
}
PROFILES = {
    "nothing": "",
    "global": "endpoint_url = http://profile:4\n",
    "services": "services = ours\nendpoint_url = http://profile:4\n",
    "ignoring": "endpoint_url = http://profile:4\nignore_configured_endpoint_urls = true\n",
}
SERVICES_SECTION = "[services ours]\nsqs =\n  endpoint_url = http://section:5\n"


@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize("variables", list(VARIABLES))
def test_endpoints_are_those_of_botocore(
    variables: str, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    for name, value in VARIABLES[variables].items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "config"
    config.write_text(f"[profile p]\nregion = eu-west-1\n{PROFILES[profile]}{SERVICES_SECTION}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    connection = Connection(profile="p")
    ours = configured(connection, open_session(connection))
    clients = botocore.session.Session(profile="p")
    for service in SERVICES:
        theirs = clients.create_client(service, config=Config()).meta.endpoint_url
        if service in ours:
            assert ours[service].url == theirs
        else:
            assert theirs == f"https://{service}.eu-west-1.amazonaws.com"
    assert is_aws(connection) == ("sqs" not in ours)
    assert kind_for("auto", ours) == ("lean" if ours else "boto3")


def test_an_endpoint_of_the_connection_is_for_both_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SNS", "http://other:1")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    connection = Connection("http://gateway:9324")
    known = configured(connection, open_session(connection))
    assert {service: each.url for service, each in known.items()} == {
        "sqs": "http://gateway:9324",
        "sns": "http://gateway:9324",
    }


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("sqs.eu-west-1.amazonaws.com", True),
        ("vpce-1.sqs.eu-west-1.vpce.amazonaws.com", True),
        ("sqs.cn-north-1.amazonaws.com.cn", True),
        ("sqs.eu-west-1.api.aws", True),
        ("amazonaws.com.example", False),
        ("notamazonaws.com", False),
        ("localhost", False),
        ("127.0.0.1", False),
    ],
)
def test_hosts_of_aws(host: str, expected: bool) -> None:
    assert is_aws_host(host) == expected
    assert is_aws(Connection(f"https://{host}")) == expected
    assert kind_for("auto", {"sqs": parse_endpoint(f"https://{host}")}) == (
        "boto3" if expected else "lean"
    )


@pytest.mark.parametrize(
    ("url", "authority", "path", "normal"),
    [
        ("http://Gateway", "gateway", "/", "http://gateway"),
        ("http://gateway:80/", "gateway", "/", "http://gateway"),
        ("https://gateway:443", "gateway", "/", "https://gateway"),
        ("https://gateway:9324/sqs/", "gateway:9324", "/sqs/", "https://gateway:9324/sqs/"),
        ("http://[::1]:9324", "[::1]:9324", "/", "http://[::1]:9324"),
    ],
)
def test_parts_of_an_endpoint(url: str, authority: str, path: str, normal: str) -> None:
    endpoint = parse_endpoint(url)
    assert (endpoint.authority, endpoint.path, endpoint.url) == (authority, path, normal)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:9324",
        "ftp://gateway",
        "http://",
        "http://gateway:port",
        "http://gateway:70000",
        "http://[::1",
        "http://gateway/?a=b",
        "http://gateway/a/../b",
        "http://gateway//a",
        "http://gate way",
        "http://gate{way",
    ],
)
def test_what_is_no_endpoint_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConnectorError, match="endpoint"):
        open_transport(Connection(url))


def test_a_password_in_an_endpoint_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConnectorError, match="gateway") as failed:
        open_transport(Connection("http://user:s3cret@gateway"))
    assert "s3cret" not in str(failed.value)


def test_aws_needs_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(ConnectorError, match="AWS_DEFAULT_REGION"):
        open_transport(Connection())


@pytest.mark.parametrize("kind", ["lean", "boto3"])
def test_a_region_that_is_none_is_refused(kind: str) -> None:
    transport = open_transport(Connection(region="bad region", kind=kind))
    with pytest.raises(ConnectorError, match="bad region"):
        transport.receive("https://sqs.eu-west-1.amazonaws.com/000000000000/q")


def test_lean_finds_the_endpoints_of_aws() -> None:
    carrier = LeanCarrier(open_session(Connection(region="cn-north-1")), {}, 0)
    assert carrier.place == "https://sqs.cn-north-1.amazonaws.com.cn"


@pytest.mark.parametrize("connection", [Connection(kind="fast"), Connection(profile="none")])
def test_what_there_is_not_is_refused_by_its_name(connection: Connection) -> None:
    with pytest.raises(ConnectorError, match=r"fast|none"):
        open_transport(connection)


@pytest.mark.parametrize("missing", ["", "orjson"])
def test_json_is_the_same_without_orjson(missing: str) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from spark_connectors.transport.http import json_text\n"
        "text = json_text.dumps({'a': b'\\xff\\x00', 'b': 'ü\"', 'c': [1, None, True]})\n"
        'assert text == \'{"a":"/wA=","b":"ü\\\\"","c":[1,null,true]}\'.encode(), text\n'
        "assert json_text.loads(text)['b'] == 'ü\"'\n"
        "for bad in (lambda: json_text.loads(b'{'), lambda: json_text.dumps({1, 2})):\n"
        "    try:\n"
        "        bad()\n"
        "    except (TypeError, ValueError):\n"
        "        continue\n"
        "    raise AssertionError('not refused')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
