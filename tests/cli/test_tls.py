"""TLS at the gateway's own port: clients, exchanged certificates, and those who come to disturb."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import SSLError  # type: ignore[import-untyped]
from cryptography.x509 import load_pem_x509_certificate

from tests.cli.processes import run
from tests.faces.channels.client import Channels
from tests.faces.channels.pushing import Socket, Stream
from tests.faces.clients import Sqs
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.protocol.certificates import write_pair
from tests.waiting import until

BEGUN = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""Of a handshake, whose rest does not come."""


class Secure(Server):
    """A gateway with a certificate in ``folder/current``, which is a link."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.pairs = folder
        self._made = 0
        self.exchange()
        current = folder / "current"
        certificate, key = str(current / "cert.pem"), str(current / "key.pem")
        flags = ("--tls-certificate", certificate, "--tls-key", key)
        path = folder / "log"
        with path.open("w") as self.log:
            super().__init__(*arguments, *flags)

    def exchange(self) -> None:
        """Let the link lead to another pair, as Kubernetes does with secrets."""
        self._made += 1
        made = self.pairs / str(self._made)
        made.mkdir()
        write_pair(made)
        new = self.pairs / "new"
        new.symlink_to(made)
        new.rename(self.pairs / "current")

    @property
    def certificate(self) -> str:
        return str(self.pairs / "current" / "cert.pem")

    def served(self) -> str:
        """The certificate that a new connection sees."""
        return ssl.get_server_certificate(("127.0.0.1", int(self.port)))

    def is_served(self) -> bool:
        return self.served().strip() == Path(self.certificate).read_text().strip()

    def lines(self, text: str) -> list[str]:
        return [line for line in (self.pairs / "log").read_text().splitlines() if text in line]

    def until_told(self, before: int) -> int:
        """Look until there is more to tell of a certificate that is not taken; how much then."""
        return len(until(lambda: self.lines("is not taken"), lambda found: len(found) > before))

    def __enter__(self) -> Self:
        return self


@pytest.fixture(scope="module", params=["1", "2"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secure]:
    """With one worker and with two."""
    with Secure(tmp_path_factory.mktemp("tls"), "--workers", request.param) as running:
        yield running


def client(service: str, gateway: Secure, verify: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=gateway.url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        verify=verify,
    )


def test_boto3_knows_it_by_its_authority(gateway: Secure, tmp_path: Path) -> None:
    assert gateway.url == f"https://127.0.0.1:{gateway.port}"
    sqs, sns = (client(service, gateway, gateway.certificate) for service in ("sqs", "sns"))
    url = sqs.create_queue(QueueName="boto3")["QueueUrl"]
    assert url == f"{gateway.url}/000000000000/boto3"
    topic = sns.create_topic(Name="news")["TopicArn"]
    arn = "arn:aws:sqs:us-east-1:000000000000:boto3"
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    for text in ("first", "second"):
        sns.publish(TopicArn=topic, Message=text)
    sqs.send_message(QueueUrl=url, MessageBody="x" * 200_000)
    bodies: list[str] = []
    while len(bodies) < 3:
        got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        bodies += [message["Body"] for message in got.get("Messages", [])]
    assert sum(f'"UnsubscribeURL":"{gateway.url}/' in "".join(body.split()) for body in bodies) == 2
    strange, _ = write_pair(tmp_path)
    with pytest.raises(SSLError):
        client("sqs", gateway, str(strange)).list_queues()


def test_requests_share_a_connection(gateway: Secure) -> None:
    """On the fast way, and those that come in pieces."""
    tls = ssl.create_default_context(cafile=gateway.certificate)
    with Sqs("json", gateway.url) as sqs:
        url = sqs.create()
        data = sqs.encode("SendMessage", {"QueueUrl": url, "MessageBody": "x"})
    with Connection(gateway.url, tls=tls) as connection:
        for _ in range(20):
            connection.send(data)
            assert connection.answer().status == 200
        connection.send_pieces([data[:40], data[40:-5], data[-5:]])
        assert connection.answer().status == 200
        connection.send(data + data)
        assert [connection.answer().status for _ in range(2)] == [200, 200]
        connection.send(b"nonsense\r\n\r\n")
        assert connection.answer().status == 400


def test_messages_are_pushed(gateway: Secure) -> None:
    with Channels(gateway.url) as channels:
        for number, consumer in enumerate((Stream, Socket)):
            with consumer(channels, channel=f"alerts{number}") as line:
                channels.publish(f"alerts{number}", "x" * 100_000)
                assert line.payloads(1) == ["x" * 100_000]


def test_who_goes_away_is_noticed(gateway: Secure) -> None:
    with Sqs("json", gateway.url) as sqs:
        url = sqs.create()
        with Connection(gateway.url) as waiting:
            wanted = {"QueueUrl": url, "WaitTimeSeconds": 20}
            waiting.send(sqs.encode("ReceiveMessage", wanted))
            gateway.until_parked()
        gateway.until_parked(0)
        sqs.send(url, "kept")
        assert sqs.bodies(url, 1) == ["kept"]


def test_plain_http_is_told(gateway: Secure) -> None:
    plain = gateway.url.replace("https:", "http:")
    answer = fetch(plain, "/livez")
    assert (answer.status, "https" in answer.text) == (400, True)
    with Connection(plain) as connection:
        connection.send(request_bytes("POST", "/", {}, b"x" * 300_000))
        assert connection.answer().status == 400
    for nonsense in (b"\x00\x01\x02", b"\x80\x2e\x01", b"\x16nonsense" * 100):
        with Connection(plain) as connection:
            connection.send(nonsense)
            assert connection.rest()[:1] in (b"", b"\x15")


@pytest.mark.parametrize(
    ("version", "is_spoken"),
    [
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_versions(gateway: Secure, version: ssl.TLSVersion, is_spoken: bool) -> None:
    tls = ssl.create_default_context(cafile=gateway.certificate)
    tls.set_ciphers("ALL:@SECLEVEL=0")
    tls.minimum_version = tls.maximum_version = version
    if not is_spoken:
        with pytest.raises(ssl.SSLError):
            Connection(gateway.url, tls=tls)
        return
    with Connection(gateway.url, tls=tls) as connection:
        connection.send(request_bytes("GET", "/livez", {"Host": connection.host}))
        assert connection.answer().status == 200


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_openssl_verifies_it(gateway: Secure) -> None:
    place, offered = f"127.0.0.1:{gateway.port}", "h2,http/1.1"
    known = ("-CAfile", gateway.certificate, "-verify_return_error")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", place, "-alpn", offered, *known],
        input=b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"ALPN protocol: http/1.1" in done.stdout
    assert b"Verify return code: 0" in done.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl_asks_twice(gateway: Secure) -> None:
    url, shown = f"{gateway.url}/livez", "%{num_connects} %{http_version}\n"
    done = subprocess.run(
        ["curl", "-sS", "--cacert", gateway.certificate, "-w", shown, url, url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[1::2] == ["1 1.1", "0 1.1"]


def test_an_exchanged_certificate_is_taken(gateway: Secure) -> None:
    """Without a restart, and nobody's connection ends; a broken pair is not taken."""
    with Connection(gateway.url) as connection:
        request = request_bytes("GET", "/livez", {"Host": connection.host})
        for _ in range(2):
            connection.send(request)
            assert connection.answer().status == 200
            gateway.exchange()
            # Of each worker, as far as connections come to it.
            until(lambda: all(gateway.is_served() for _ in range(8)), bool)
        before = gateway.served()
        told = len(gateway.lines("is not taken"))
        key = gateway.pairs / "current" / "key.pem"
        kept = key.read_text()
        for broken in ("", kept.replace("PRIVATE", "ENCRYPTED PRIVATE"), None):
            key.unlink()
            if broken is not None:
                key.write_text(broken)
            told = gateway.until_told(told)
            assert gateway.served() == before
        assert not any("BEGIN" in line for line in gateway.lines(""))
        key.write_text(kept)
        gateway.exchange()
        until(lambda: all(gateway.is_served() for _ in range(8)), bool)
        connection.send(request)
        assert connection.answer().status == 200


def test_metrics_know_when_it_ends(gateway: Secure) -> None:
    ends = load_pem_x509_certificate(gateway.served().encode()).not_valid_after_utc
    name = "queuegate_certificate_expiry_timestamp_seconds"
    assert gateway.metric(f'{name}{{certificate="tls"}}') == ends.timestamp()
    assert gateway.metric(f'queuegate_build_info{{version="{version("queuegate")}"}}') == 1


def test_health_knows_its_own_certificate(gateway: Secure, tmp_path: Path) -> None:
    strange, key = write_pair(tmp_path)
    for certificate, code in ((gateway.certificate, 0), (str(strange), 1)):
        done = run(
            "health",
            QUEUEGATE_PORT=gateway.port,
            QUEUEGATE_TLS_CERTIFICATE=certificate,
            QUEUEGATE_TLS_KEY=str(key),
        )
        assert done.returncode == code, done.stderr


def test_who_does_not_finish_makes_room(tmp_path: Path) -> None:
    """With room for 24 clients: those who say nothing, and those who stop in the middle, go."""
    with Secure(tmp_path, "--max-clients", "24") as gateway:
        plain = gateway.url.replace("https:", "http:")
        silent = [Connection(plain) for _ in range(100)]
        try:
            for connection in silent[::2]:
                connection.send(BEGUN)
            for _ in range(5):
                assert fetch(gateway.url, "/livez").status == 200
            # They may have been reset.
            assert all(connection.rest() == b"" for connection in silent[:60])
            assert gateway.lines("unfinished handshakes")
        finally:
            for connection in silent:
                connection.close()


@pytest.mark.parametrize(
    ("certificate", "key", "text"),
    [
        ("cert.pem", "", "--tls-certificate and --tls-key belong together"),
        ("nothing.pem", "key.pem", "nothing.pem cannot be read: No such file"),
        ("cert.pem", "nothing.pem", "nothing.pem cannot be read: No such file"),
        ("key.pem", "key.pem", "key.pem holds no certificate in PEM"),
        ("cert.pem", "cert.pem", "cert.pem holds no private key in PEM"),
        ("cert.pem", "other/key.pem", "other/key.pem is not the key of"),
        ("cert.pem", "locked.pem", "locked.pem is encrypted: it has to be without a password"),
        ("cert.pem", "old.pem", "old.pem is encrypted: it has to be without a password"),
        ("broken.pem", "key.pem", "broken.pem and "),
        ("", "key.pem", "--tls-certificate and --tls-key belong together"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, certificate: str, key: str, text: str
) -> None:
    write_pair(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    write_pair(other)
    content = (tmp_path / "key.pem").read_text()
    locked = content.replace("PRIVATE", "ENCRYPTED PRIVATE")
    (tmp_path / "locked.pem").write_text(locked)
    old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n"
    (tmp_path / "old.pem").write_text(old)
    (tmp_path / "broken.pem").write_text((tmp_path / "cert.pem").read_text()[:200])
    flags = ["--tls-certificate", str(tmp_path / certificate)] if certificate else []
    flags += ["--tls-key", str(tmp_path / key)] if key else []
    done = run("serve", "--ephemeral", "--port", "0", *flags)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert "PRIVATE" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_key_that_is_not_ours_to_read_is_one_line(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path)
    key.chmod(0)
    files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    done = run("serve", "--ephemeral", "--port", "0", *files)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot be read: Permission denied" in done.stderr


def test_silence_on_a_port_of_tls_is_not_for_ever(gateway: Secure) -> None:
    """Ten seconds."""
    with socket.create_connection(("127.0.0.1", int(gateway.port)), 60) as silent:
        assert silent.recv(1) == b""
    with socket.create_connection(("127.0.0.1", int(gateway.port)), 60) as begun:
        begun.sendall(BEGUN)
        assert begun.recv(1) == b""
