from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gateway.configuration import settings as config
from gateway.configuration import table as config_table
from gateway.configuration.fields import variable_of
from gateway.configuration.settings import BadSetting, Settings


def test_defaults_need_no_environment() -> None:
    settings = Settings.from_env({})
    assert (settings.hosts, settings.port, settings.auth) == (("localhost",), 9324, "presence")
    assert settings.database_url is None


def test_flags_come_before_variables() -> None:
    settings = Settings.from_env({"QUEUEGATE_PORT": "1"}, {"port": "2", "hosts": None})
    assert settings.port == 2


def test_an_empty_variable_counts_as_unset() -> None:
    assert Settings.from_env({"QUEUEGATE_PORT": "", "DATABASE_URL": ""}) == Settings.from_env({})


@pytest.mark.parametrize("name", ["QUEUEGATE_ADDRESS", "QUEUE_ADDRESS"])
def test_address_gives_host_and_port(name: str) -> None:
    settings = Settings.from_env({name: "0.0.0.0:7000"})
    assert (settings.hosts, settings.port) == (("0.0.0.0",), 7000)
    assert Settings.from_env({name: "[::]:7000"}).hosts == ("::",)
    assert Settings.from_env({name: "10.0.0.7,[::1]:7000"}).hosts == ("10.0.0.7", "::1")
    assert Settings.from_env({name: "h:7000", "QUEUEGATE_PORT": "1"}).port == 1


def test_names_of_the_seed_are_accepted() -> None:
    settings = Settings.from_env(
        {
            "QUEUE_DEFAULT_VISIBILITY_TIMEOUT": "5",
            "QUEUE_MAX_CONNECTIONS": "6",
            "QUEUE_LINGER_MS": "7",
            "QUEUE_BASE_URL": "https://queues.example/",
            "LOG_LEVEL": "WARN",
        }
    )
    assert settings.default_visibility_timeout_seconds == 5
    assert settings.max_database_connections == 6
    assert settings.linger_ms == 7
    assert settings.base_url == "https://queues.example"
    assert settings.log_level == "warning"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("QUEUEGATE_PORT", "65536", "from 0 to 65535"),
        ("QUEUEGATE_PORT", "http", "from 0 to 65535"),
        ("QUEUEGATE_PORT", "-1", "from 0 to 65535"),
        ("QUEUEGATE_PORT", "٣", "from 0 to 65535"),
        ("QUEUEGATE_WORKERS", "0", "from 1 to 64"),
        ("QUEUEGATE_HOST", "a b", "addresses or host names"),
        ("QUEUEGATE_HOST", "localhost,", "addresses or host names"),
        ("QUEUE_ADDRESS", "9324", "host:port"),
        ("QUEUE_BASE_URL", "ftp://x", "http://host"),
        ("QUEUE_BASE_URL", "http://x/path", "without a path"),
        ("QUEUE_BASE_URL", "http://x:port", "http://host"),
        ("QUEUEGATE_ACCOUNT_ID", "123", "12 digits"),
        ("QUEUEGATE_ACCOUNTS", "AKIA=12", "ACCESSKEY=123456789012"),
        ("QUEUEGATE_ACCOUNTS", "AKIA", "ACCESSKEY=123456789012"),
        ("QUEUEGATE_AUTH", "sigv4", "later release"),
        ("QUEUEGATE_AUTH", "password", "none or presence"),
        ("QUEUEGATE_REGION", "US East", "us-east-1"),
        ("QUEUEGATE_EPHEMERAL", "maybe", "true or false"),
        ("QUEUEGATE_LOG_LEVEL", "loud", "debug, info, warning or error"),
        ("QUEUEGATE_LOG_FORMAT", "xml", "auto, text or json"),
        ("QUEUEGATE_PURGE_INTERVAL", "61", "from 0 to 60"),
        ("QUEUEGATE_DATA_DIR", " ", "a directory"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        Settings.from_env({name: value})
    text = str(refusal.value)
    assert text.startswith(f"{name}={value!r}: ")
    assert allowed in text
    assert "\n" not in text


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "h:secret", "postgresql://"])
def test_a_bad_database_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        Settings.from_env({"DATABASE_URL": url})
    assert "DATABASE_URL" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_flag_is_named_as_the_flag() -> None:
    with pytest.raises(BadSetting, match=r"^--max-body-bytes='1': allowed is"):
        Settings.from_env({}, {"max_body_bytes": "1"})
    with pytest.raises(BadSetting, match=r"^--host='a b'"):
        Settings.from_env({}, {"hosts": "a b"})
    with pytest.raises(BadSetting, match=r"^--data=''"):
        Settings.from_env({}, {"data_dir": ""})


def test_the_password_is_not_in_repr_or_in_the_list() -> None:
    settings = Settings.from_env({"DATABASE_URL": "postgresql://u:secret@h/d"})
    assert "secret" not in repr(settings)
    assert ("DATABASE_URL", "(hidden)") in config_table.effective(settings)


def test_settings_survive_the_way_to_a_child_process() -> None:
    settings = Settings.from_env(
        {
            "DATABASE_URL": "postgresql://u:secret@h/d",
            "QUEUEGATE_ACCOUNTS": "AKIA=111111111111, OTHER=222222222222",
            "QUEUEGATE_ADMIN_CLOCK": "yes",
            "QUEUEGATE_RUNTIME_DIR": "/tmp/x",
            "QUEUE_ADDRESS": "[::1],localhost:5",
        }
    )
    environ = config.child_environment(settings, {"QUEUE_ADDRESS": "h:1", "HOME": "/root"})
    assert Settings.from_env(environ) == settings
    assert environ["HOME"] == "/root"


def test_the_clock_can_be_moved_only_when_ephemeral_or_asked_for() -> None:
    assert not Settings.from_env({}).admin_clock
    assert Settings.from_env({"QUEUEGATE_EPHEMERAL": "1"}).admin_clock
    assert not Settings.from_env(
        {"QUEUEGATE_EPHEMERAL": "1", "QUEUEGATE_ADMIN_CLOCK": "off"}
    ).admin_clock


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, (60, 60)),
        ({"QUEUEGATE_AWS_COOLDOWNS": "0"}, (60, 60)),
        ({"QUEUEGATE_EPHEMERAL": "1"}, (0, 0)),
        ({"QUEUEGATE_EPHEMERAL": "1", "QUEUEGATE_PURGE_INTERVAL": "7"}, (7, 0)),
        ({"QUEUEGATE_EPHEMERAL": "1", "QUEUEGATE_AWS_COOLDOWNS": "1"}, (60, 60)),
        (
            {
                "QUEUEGATE_EPHEMERAL": "1",
                "QUEUEGATE_AWS_COOLDOWNS": "1",
                "QUEUEGATE_QUEUE_RECREATE_SECONDS": "0",
            },
            (60, 0),
        ),
    ],
)
def test_only_ephemeral_gateways_are_without_the_cooldowns_of_sqs(
    environ: dict[str, str], seconds: tuple[int, int]
) -> None:
    settings = Settings.from_env(environ)
    assert (settings.purge_interval_seconds, settings.queue_recreate_seconds) == seconds
    assert Settings.from_env(settings.to_env()) == settings


@pytest.mark.parametrize(
    ("environ", "allowed"),
    [
        ({}, True),
        ({"QUEUEGATE_HOST": "localhost"}, True),
        ({"QUEUEGATE_HOST": "::1"}, True),
        ({"QUEUEGATE_HOST": "0.0.0.0"}, False),
        ({"QUEUE_ADDRESS": "0.0.0.0:9324"}, False),
        ({"QUEUEGATE_HOST": "127.example.com"}, False),
        ({"QUEUEGATE_HOST": "127.0.0.1,0:0:0:0:0:0:0:1, LOCALHOST"}, True),
        ({"QUEUEGATE_HOST": "127.0.0.1,10.0.0.7"}, False),
        ({"QUEUEGATE_HOST": "::1,::"}, False),
        ({"QUEUEGATE_HOST": "0.0.0.0", "QUEUEGATE_EPHEMERAL": "1"}, True),
        ({"QUEUEGATE_HOST": "0.0.0.0", "QUEUEGATE_PRIVATE_WEBHOOKS": "1"}, True),
        ({"QUEUEGATE_EPHEMERAL": "1", "QUEUEGATE_PRIVATE_WEBHOOKS": "0"}, False),
    ],
)
def test_private_web_hooks_are_for_local_gateways(environ: dict[str, str], allowed: bool) -> None:
    assert Settings.from_env(environ).allows_private_webhooks is allowed


def test_ephemeral_excludes_a_database_url() -> None:
    with pytest.raises(BadSetting, match="exclude each other"):
        Settings.from_env({"DATABASE_URL": "postgresql://h/d"}, {"ephemeral": "true"})


def test_misspelt_variables_are_pointed_out() -> None:
    (line,) = config_table.warnings_about({"QUEUEGATE_PROT": "1", "QUEUE_NAME": "not ours"})
    assert "QUEUEGATE_PROT" in line
    assert "did you mean QUEUEGATE_PORT?" in line


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("QUEUE_SCHEDULE_POLL_MSEC", "QUEUE_SCHEDULE_POLL_MS"),
        ("OTLP_ENDPOINTS", "OTLP_ENDPOINT"),
    ],
)
def test_variables_without_effect_are_pointed_out(name: str, meant: str) -> None:
    assert config_table.warnings_about({meant: "1"}) == []
    (line,) = config_table.warnings_about({name: "1"})
    assert line.startswith(name)
    assert f"did you mean {meant}?" in line


def test_every_setting_is_in_the_table() -> None:
    rows = {name for variable, _ in config_table.table() for name in variable.names}
    for item in dataclasses.fields(Settings):
        variable = variable_of(item)
        assert variable.internal or set(variable.names) <= rows
        assert variable.explanation.endswith(".")
    shown = [line for line in config_table.markdown_table().splitlines() if line[:3] == "| `"]
    assert len(shown) == len(config_table.table())


def test_data_lives_in_the_state_directory_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert Settings.from_env({"HOME": "/h"}).data_dir == Path("/h/.local/state/queuegate")
    assert Settings.from_env({"XDG_STATE_HOME": "/s"}).data_dir == Path("/s/queuegate")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert Settings.from_env({"HOME": "/root"}).data_dir == Path("/var/lib/queuegate")
