"""The key that signs messages: kept over restarts, or supplied in files, which are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from queuegate.gateway.configuration.settings import BadSetting, Settings
from queuegate.gateway.process.key_files import supplied_key
from tests.cli.processes import Gateway, run
from tests.protocol.certificates import certificate_of, pem_of

KEY = "QUEUEGATE_SIGNING_KEY_FILE"
CERTIFICATE = "QUEUEGATE_SIGNING_CERTIFICATE_FILE"
CURRENT = "/SimpleNotificationService.pem"
PRIVATE_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
CURVE_KEY = ec.generate_private_key(ec.SECP256R1())
GOOD_KEY, GOOD_CERTIFICATE = pem_of(PRIVATE_KEY), certificate_of(PRIVATE_KEY)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A right pair of files, by variable."""
    values = {KEY: tmp_path / "key.pem", CERTIFICATE: tmp_path / "certificate.pem"}
    values[KEY].write_text(GOOD_KEY)
    values[CERTIFICATE].write_text(GOOD_CERTIFICATE)
    return {name: str(path) for name, path in values.items()}


def certificate(gateway: Gateway) -> str:
    status, text = gateway.get(CURRENT)
    assert status == 200, text
    return text


def test_a_restart_keeps_the_key_and_a_supplied_one_takes_over(
    used_data: Path, files: dict[str, str]
) -> None:
    """Three starts of a gateway with its PostgreSQL."""
    kept = ("--data", str(used_data))
    with Gateway(*kept) as gateway:
        own = certificate(gateway)
    with Gateway(*kept, **files) as gateway:
        assert certificate(gateway) == GOOD_CERTIFICATE
    with Gateway(*kept, "--workers", "2") as gateway:
        assert certificate(gateway) == own


def test_a_right_pair_is_read(files: dict[str, str]) -> None:
    key = supplied_key(Settings.from_env(files))
    assert key is not None
    assert key.certificate_pem == GOOD_CERTIFICATE
    assert supplied_key(Settings.from_env({})) is None


@pytest.mark.parametrize("name", [KEY, CERTIFICATE])
def test_one_file_without_the_other_is_refused(files: dict[str, str], name: str) -> None:
    with pytest.raises(BadSetting, match=f"^{KEY} and {CERTIFICATE} belong together"):
        Settings.from_env({name: files[name]})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (KEY, None, "cannot be read: No such file or directory"),
        (CERTIFICATE, None, "cannot be read: No such file or directory"),
        (KEY, "", "this is not a private key in PEM"),
        (KEY, GOOD_CERTIFICATE, "this is not a private key in PEM"),
        (KEY, GOOD_KEY[:500], "this is not a private key in PEM"),
        (KEY, pem_of(CURVE_KEY), "this is not an RSA key, and SNS signs with no other"),
        (
            KEY,
            pem_of(PRIVATE_KEY, b"password"),
            "this key is encrypted; only one without a password can be used",
        ),
        (KEY, pem_of(OTHER_KEY), "this is the certificate of another key"),
        (CERTIFICATE, "", "this is not a certificate in PEM"),
        (CERTIFICATE, GOOD_KEY, "this is not a certificate in PEM"),
        (CERTIFICATE, GOOD_CERTIFICATE[:500], "this is not a certificate in PEM"),
        (CERTIFICATE, certificate_of(CURVE_KEY), "this is not the certificate of an RSA key"),
        (CERTIFICATE, certificate_of(OTHER_KEY), "this is the certificate of another key"),
        (CERTIFICATE, GOOD_CERTIFICATE + "\n" * 1_048_576, "is too large for a PEM file"),
    ],
)
def test_a_bad_file_is_named_with_the_reason(
    files: dict[str, str], name: str, content: str | None, reason: str
) -> None:
    file = Path(files[name])
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(BadSetting) as refusal:
        supplied_key(Settings.from_env(files))
    named = CERTIFICATE if reason.endswith("another key") else name
    text = str(refusal.value)
    assert text == f"{named}={files[named]!r}: {reason}"
    assert "BEGIN" not in text


def test_a_directory_is_no_file(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="cannot be read: Is a directory"):
        supplied_key(Settings.from_env(files | {KEY: str(tmp_path)}))


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_commands_that_start_something_say_it_in_one_line(
    files: dict[str, str], command: str
) -> None:
    Path(files[KEY]).write_text("nothing")
    done = run(command, **files)
    assert done.returncode == 2
    assert done.stderr == (f"queuegate: {KEY}={files[KEY]!r}: this is not a private key in PEM\n")
    assert run("config", **files).returncode == 0


def test_the_key_is_not_shown(files: dict[str, str]) -> None:
    key = supplied_key(Settings.from_env(files))
    assert "PRIVATE KEY" not in repr(key)
    assert "PRIVATE KEY" not in run("config", **files).stdout
