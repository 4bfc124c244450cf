"""The `queuegate` command. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from queuegate.gateway.command import (
    deliveries_arguments,
    keys_arguments,
    log_arguments,
    pause_arguments,
    quotas_arguments,
    redrive_arguments,
)
from queuegate.gateway.command.actions import Parser
from queuegate.gateway.configuration import settings as config
from queuegate.gateway.configuration import table as config_table
from queuegate.gateway.configuration.places import default_data_dir

_DESCRIPTION = """\
Queuegate: SQS, SNS, EventBridge Scheduler and a REST API of its own, durable on PostgreSQL.

  queuegate serve                 start on http://127.0.0.1:9324, with a PostgreSQL of its own
  queuegate serve --ephemeral     the same for tests: quick, and gone at exit
  queuegate doctor                find out why it does not start
"""

_SERVE = """\
Start the gateway. Without a database URL it starts its own PostgreSQL and keeps the data in a
directory that the next start finds. Ctrl-C or SIGTERM finishes what is in flight and stops both.
Its own PostgreSQL needs Linux with glibc 2.28, or macOS.

examples:
  queuegate serve
  queuegate serve --port 4566 --auth none
  queuegate serve --ephemeral --port 0
  queuegate serve --ephemeral --aws-cooldowns
  queuegate serve --host 0.0.0.0 --workers 4 --data /srv/queuegate
  queuegate serve --host localhost --host 10.0.0.7
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate serve

Every flag has a variable, and there are more variables than flags: `queuegate config` lists them.
"""

_MIGRATE = """\
Bring the tables of the database up to this version and print what was applied. `serve` does the
same at its start; this command is for a release step of its own. It is safe to run twice, and at
the same time in several places. Gateways of the version before go on beside it, unless it says
otherwise. --finish also takes away what only they need, once none of them runs.

examples:
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate migrate
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate migrate --finish
"""

_WORKER = """\
Run the background workers without a gateway: web hooks, schedules, message moves, replays,
retention, counters. Each gateway runs them, too, in its first process. To keep the first two off
the gateways, start those with QUEUE_HTTP_DELIVERY_ENABLED=false and QUEUE_SCHEDULE_ENABLED=false.
Start as many workers as you like. They need a PostgreSQL of your own.

example:
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate worker
"""

_DOCTOR = """\
Check what `serve` needs, one line for each thing, and say what to do where something is wrong.
Nothing is changed. Ends with 0 when all is well, else with 1. Takes the same settings as `serve`.

examples:
  queuegate doctor
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate doctor
"""

_HEALTH = """\
Ask a running gateway whether it is ready. Ends with 0 if so, else with 1. For the health checks of
containers, which then need no curl.

examples:
  queuegate health
  queuegate health --port 4566
  queuegate health --url http://gateway:9324/livez
"""

_CONFIG = """\
Print every setting with the value that is in effect. Passwords are hidden.

examples:
  queuegate config
  queuegate config --table        all variables with defaults, as a Markdown table
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0, 1 for what failed, 2 for what was asked wrong."""
    if sys.platform == "win32":
        _leave("Windows is not supported: use WSL, or a container")
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _serve(options: argparse.Namespace) -> int:
    settings = _settings_to_start(options)
    from queuegate.gateway.command.starting import serve

    return serve(settings)


def _migrate(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from queuegate.gateway.command.starting import migrate_only

    return migrate_only(settings, finish=options.finish)


def _worker(options: argparse.Namespace) -> int:
    settings = _settings_to_start(options)
    from queuegate.gateway.command.starting import work

    return work(settings)


def _doctor(options: argparse.Namespace) -> int:
    settings = _settings_to_start(options)
    from queuegate.gateway.command.doctor import examine

    return examine(settings)


def _deliveries(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from queuegate.gateway.command.deliveries import run

    return run(settings, options)


def _keys(options: argparse.Namespace) -> int:
    settings = _with_master_key(_settings(options))
    from queuegate.gateway.command.keys import run

    return run(settings, options)


def _quotas(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from queuegate.gateway.command.quotas import run

    return run(settings, options)


def _health(options: argparse.Namespace) -> int:
    from queuegate.gateway.command.asking import default_url, operators_url
    from queuegate.gateway.command.health import examine

    is_placed = options.port or options.hosts
    if options.url and is_placed:
        _leave("--url says where to ask: leave --host and --port out")
    if options.url:
        return examine(options.url)
    settings = _settings(options)
    url = default_url(settings) if is_placed else operators_url(settings)
    return examine(url + "/readyz", settings.tls_certificate)


def _log(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from queuegate.gateway.command.log import run

    return run(settings, options)


def _pause(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from queuegate.gateway.command.pauses import run

    return run(settings, options)


def _redrive(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from queuegate.gateway.command.redrive import run

    return run(settings, options)


def _config(options: argparse.Namespace) -> int:
    if options.table:
        print(config_table.markdown_table())
        return 0
    for name, value in config_table.effective(_settings(options)):
        print(f"{name}={value}")
    return 0


def _settings(options: argparse.Namespace) -> config.Settings:
    """Settings from the environment and the flags; leaves with 2 and one line when one is bad."""
    environ = config.process_environment()
    overrides = {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS}
    if overrides.get("hosts"):
        overrides["hosts"] = ",".join(overrides["hosts"])
    try:
        settings = config.Settings.from_env(environ, overrides)
    except config.BadSetting as refusal:
        _leave(str(refusal))
    for line in config_table.warnings_about(environ):
        print(f"queuegate: warning: {line}", file=sys.stderr)
    return settings


def _settings_to_start(options: argparse.Namespace) -> config.Settings:
    """The same, with the files that they name and the packages that they need looked at, too."""
    from queuegate.gateway.process.supplied_keys import supplied_key, tls_certificate
    from queuegate.gateway.process.webhook_certificates import check_ca_file
    from queuegate.gateway.tracing.opening import check_installed

    settings = _settings(options)
    try:
        supplied_key(settings)
        check_ca_file(settings)
        tls_certificate(settings)
        check_installed(settings)
    except config.BadSetting as refusal:
        _leave(str(refusal))
    return _with_master_key(settings)


def _with_master_key(settings: config.Settings) -> config.Settings:
    from queuegate.gateway.process.master_key import with_master_key

    try:
        return with_master_key(settings)
    except config.BadSetting as refusal:
        _leave(str(refusal))


_NOT_SETTINGS = {"command", "url", "table"}


def _leave(message: str) -> NoReturn:
    print(f"queuegate: {message}", file=sys.stderr)
    sys.exit(2)


class _Version(argparse.Action):
    """Prints the version, looked up only when asked for: that takes longer than all the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"queuegate {version('queuegate')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="queuegate",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and leave")
    commands = parser.add_subparsers(metavar="command", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], int], summary: str, text: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=summary,
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=run)
        return command

    serve = add("serve", _serve, "start the gateway, and its database if you have none", _SERVE)
    _add_place(serve)
    _add_database(serve)
    _add_serving(serve)
    upgrade = add("migrate", _migrate, "bring the database up to this version", _MIGRATE)
    upgrade.add_argument(
        "--finish", action="store_true", help="no gateway of an older version runs any more"
    )
    _add_database(upgrade)
    worker = add("worker", _worker, "run the background workers only", _WORKER)
    _add_database(worker)
    doctor = add("doctor", _doctor, "check what the gateway needs", _DOCTOR)
    _add_place(doctor)
    _add_database(doctor)
    deliveries = add(
        "deliveries", _deliveries, deliveries_arguments.SUMMARY, deliveries_arguments.DESCRIPTION
    )
    deliveries_arguments.add_actions(deliveries, _add_database)
    keys = add("keys", _keys, keys_arguments.SUMMARY, keys_arguments.DESCRIPTION)
    keys_arguments.add_actions(keys, _add_database)
    quotas = add("quotas", _quotas, quotas_arguments.SUMMARY, quotas_arguments.DESCRIPTION)
    quotas_arguments.add_actions(quotas, _add_database)
    redrive = add("redrive", _redrive, redrive_arguments.SUMMARY, redrive_arguments.DESCRIPTION)
    redrive_arguments.add_arguments(redrive)
    pause = add("pause", _pause, pause_arguments.PAUSE_SUMMARY, pause_arguments.PAUSE)
    pause_arguments.add_actions(pause, "PUT")
    resume = add("resume", _pause, pause_arguments.RESUME_SUMMARY, pause_arguments.RESUME)
    pause_arguments.add_actions(resume, "DELETE")
    logs = add("log", _log, log_arguments.SUMMARY, log_arguments.DESCRIPTION)
    log_arguments.add_actions(logs)
    health = add("health", _health, "ask a running gateway whether it is ready", _HEALTH)
    _add_place(health)
    health.add_argument("--url", help="what to ask (default: /readyz where it is configured)")
    shown = add("config", _config, "print the settings in effect", _CONFIG)
    shown.add_argument("--table", action="store_true", help="print a table of all variables")
    return parser


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--host",
        metavar="H",
        dest="hosts",
        action="append",
        help="where to listen (default: localhost, which is 127.0.0.1 and ::1); several by commas "
        "or by repeating it",
    )
    command.add_argument("--port", metavar="P", help="port to listen on (default: 9324; 0: any)")


def _add_database(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        metavar="DIR",
        dest="data_dir",
        help=f"data of the bundled PostgreSQL (default: {_default_data_dir()})",
    )
    command.add_argument(
        "--database-url",
        metavar="URL",
        help="a PostgreSQL 15+ of your own; DATABASE_URL keeps its password out of `ps`",
    )


def _add_serving(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ephemeral",
        action="store_const",
        const="true",
        help="for tests: data in a temporary directory, without fsync, gone at exit; the clock can "
        "be moved; queues can be purged twice and created again at once",
    )
    command.add_argument(
        "--aws-cooldowns",
        action="store_const",
        const="true",
        help="with --ephemeral: a second purge and the name of a deleted queue wait for 60 s",
    )
    command.add_argument(
        "--tls-certificate", metavar="FILE", help="speak TLS with this certificate, in PEM"
    )
    command.add_argument("--tls-key", metavar="FILE", help="its key, in PEM")
    command.add_argument("--workers", metavar="N", help="processes on the port (default: 1)")
    command.add_argument("--max-clients", metavar="N", help="connections of a process")
    command.add_argument("--region", metavar="R", help="default region (default: us-east-1)")
    command.add_argument(
        "--auth", metavar="MODE", help="none, presence or sigv4 (default: presence)"
    )
    command.add_argument(
        "--faces", metavar="F,F", help="only these APIs: aws, rest, simple, text, channels, log"
    )
    command.add_argument("--base-url", metavar="URL", help="start of the queue URLs in answers")
    command.add_argument("--log-level", metavar="L", help="debug, info, warning or error")
    command.add_argument("--log-format", metavar="F", help="auto, text or json (default: auto)")
    command.add_argument(
        "--access-log", action="store_const", const="true", help="log one line for each request"
    )


def _default_data_dir() -> str:
    return str(default_data_dir(config.process_environment())).replace("%", "%%")
