from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from queuegate.gateway.configuration import settings_table as config_table
from queuegate.gateway.configuration.settings import VARIABLES, BadSetting, Settings


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
        ("QUEUEGATE_AUTH", "password", "none, presence or sigv4"),
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


def test_a_direct_url_belongs_to_a_pooled_one() -> None:
    direct = {"QUEUEGATE_DIRECT_DATABASE_URL": "postgresql://u:secret@h/d"}
    with pytest.raises(BadSetting, match="belongs to DATABASE_URL") as refusal:
        Settings.from_env(direct)
    assert "secret" not in str(refusal.value)
    settings = Settings.from_env(direct | {"DATABASE_URL": "postgresql://u:secret@pool/d"})
    assert settings.session_url == "postgresql://u:secret@h/d"
    assert "secret" not in repr(settings)
    assert Settings.from_env({"DATABASE_URL": "postgresql://h/d"}).session_url == "postgresql://h/d"


def test_a_database_of_the_command_line_has_no_other_beside_it() -> None:
    """Commands would change the database that the environment names."""
    direct = {"QUEUEGATE_DIRECT_DATABASE_URL": "postgresql://u:secret@h/d"}
    with pytest.raises(BadSetting, match="exclude each other: the option"):
        Settings.from_env(direct, {"database_url": "postgresql://u@other/d"})


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
        variable = VARIABLES[item.name]
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


@pytest.mark.parametrize(
    ("parts", "url"),
    [
        ({"DB_HOST": "db"}, "postgresql://postgres:postgres@db:5432/postgres"),
        ({"DB_PORT": "6432"}, "postgresql://postgres:postgres@localhost:6432/postgres"),
        ({"DB_USER": "a@b/c"}, "postgresql://a%40b%2Fc:postgres@localhost:5432/postgres"),
        ({"DB_PASSWORD": "p:w?"}, "postgresql://postgres:p%3Aw%3F@localhost:5432/postgres"),
        ({"DB_NAME": "own"}, "postgresql://postgres:postgres@localhost:5432/own"),
        ({"DB_HOST": "::1"}, "postgresql://postgres:postgres@[::1]:5432/postgres"),
        (
            {"DB_HOST": "/run/pg"},
            "postgresql://postgres:postgres@/postgres?host=%2Frun%2Fpg&port=5432",
        ),
    ],
)
def test_a_database_in_parts(parts: dict[str, str], url: str) -> None:
    settings = Settings.from_env(parts)
    assert settings.database_url == url


def test_parts_do_not_count_beside_what_says_otherwise() -> None:
    parts = {"DB_HOST": "db", "DB_PASSWORD": "secret"}
    url = "postgresql://u@h/d"
    assert Settings.from_env(parts | {"DATABASE_URL": url}).database_url == url
    assert Settings.from_env(parts, {"ephemeral": "true"}).database_url is None
    assert Settings.from_env(parts | {"QUEUEGATE_EPHEMERAL": "1"}).database_url is None
    assert Settings.from_env(parts, {"data_dir": "/d"}).database_url is None
    assert Settings.from_env(dict.fromkeys(parts, "")).database_url is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("DB_HOST", "a/b"), ("DB_PORT", "0"), ("DB_USER", "a\nb"), ("DB_PASSWORD", "hidden\0")],
)
def test_parts_are_checked(name: str, value: str) -> None:
    with pytest.raises(BadSetting) as refused:
        Settings.from_env({name: value})
    assert name in str(refused.value)
    assert "hidden\0" not in str(refused.value)
    assert ("(value hidden)" in str(refused.value)) == (name == "DB_PASSWORD")


@pytest.mark.parametrize("value", ["qg_1_x", "a\nb", "x" * 4097, " "])
def test_the_key_of_the_gateway_is_checked_and_never_shown(value: str) -> None:
    with pytest.raises(BadSetting) as refused:
        Settings.from_env({"API_KEY": value})
    assert "(value hidden)" in str(refused.value)
    settings = Settings.from_env({"API_KEY": " the key "})
    assert settings.api_key == "the key"
    assert "the key" not in repr(settings)
    assert ("QUEUEGATE_API_KEY", "(hidden)") in config_table.effective(settings)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("500/s", (500, 1)), ("100/m", (100, 60)), ("7/2h", (7, 7200)), ("5000/10S", (5000, 10))],
)
def test_rates(text: str, rate: tuple[int, int]) -> None:
    settings = Settings.from_env({"QUEUEGATE_CHANNEL_RATE_LIMIT": text})
    assert settings.channel_rate_limit == rate


@pytest.mark.parametrize(
    "text", ["0/s", "5", "5/0s", "5/25h", "1000001/s", "5/d", "-1/s", "\u0665/s"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(BadSetting):
        Settings.from_env({"QUEUEGATE_CHANNEL_RATE_LIMIT": text})


def test_faces() -> None:
    assert Settings.from_env({}).faces == ("aws", "rest", "simple", "text", "channels", "log")
    settings = Settings.from_env({"QUEUEGATE_FACES": " Text,aws ,aws"})
    assert settings.faces == ("aws", "text")
    for text in (",", "soap", "aws,"):
        with pytest.raises(BadSetting):
            Settings.from_env({"QUEUEGATE_FACES": text})
