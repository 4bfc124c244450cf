"""The `queuegate` command. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import argparse
import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from queuegate.gateway.command.command_line import (
    CommandParser,
    CommandRefused,
    add_database,
    add_options,
    fail,
    plain,
)
from queuegate.gateway.configuration import settings as config
from queuegate.gateway.configuration import settings_table as config_table

_DESCRIPTION = """\
Queuegate: SQS, SNS, EventBridge Scheduler and a REST API of its own, durable on PostgreSQL.

  queuegate serve                 start on http://127.0.0.1:9324, with a bundled PostgreSQL
  queuegate serve --ephemeral     the same for tests: fast, and the data is deleted at exit
  queuegate doctor                find out why the gateway does not start
"""

_SERVE_OPTIONS = """\
--tls-certificate FILE  serve TLS with this certificate, in PEM
--tls-key FILE          key of the certificate, in PEM
--workers N             gateway processes on the port (default: 1)
--max-clients N         maximum connections of a process
--region R              default region (default: us-east-1)
--auth MODE             none, presence or sigv4 (default: presence)
--like SERVER           replace localstack, elasticmq or moto in tests: port, pages, scripts
--faces F,F             enable only these APIs: aws, rest, simple, text, channels, log
--base-url URL          start of queue URLs in responses
--config FILE           seed file, elasticmq.conf or CloudFormation template to apply at start
--log-level L           least severe records to log: debug, info, warning or error
--log-format F          auto, text or json (default: auto)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 if it failed, 2 if the input is wrong."""
    if sys.platform == "win32":
        _exit_2("Windows is not supported: use WSL, or a container")
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except CommandRefused as refusal:
        return fail(plain(str(refusal)))


def _serve(options: argparse.Namespace) -> int:
    """Start the gateway. Without a database URL, the gateway starts its own PostgreSQL and keeps
    the data in a directory that later starts reuse. Ctrl-C or SIGTERM finishes requests in
    flight and stops both. The bundled PostgreSQL needs Linux with glibc 2.28, or macOS.

    examples:
      queuegate serve
      queuegate serve --port 4566 --auth none
      queuegate serve --ephemeral --port 0
      queuegate serve --ephemeral --aws-cooldowns
      queuegate serve --like localstack
      queuegate serve --host 0.0.0.0 --workers 4 --data /srv/queuegate
      queuegate serve --host localhost --host 10.0.0.7
      queuegate serve --config queues.toml
      DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate serve

    Every option has an environment variable. `queuegate config` lists these and further variables.
    """
    if options.ephemeral and sys.dont_write_bytecode:
        _keep_bytecode()
    settings = _settings_to_start(options)
    # Garbage collections of the imports find nothing. `serve` turns them on again.
    gc.disable()
    from queuegate.gateway.command.serve import serve

    return serve(settings)


def _keep_bytecode() -> None:
    """Keep compiled modules in our cache: to compile them takes longer than all the rest of an
    ephemeral start."""
    from queuegate.storage.embedded.cache_directory import cache_directory, is_own

    place = cache_directory(config.process_environment()) / "bytecode"
    if is_own(place):
        sys.pycache_prefix = str(place)
        sys.dont_write_bytecode = False


def _migrate(options: argparse.Namespace) -> int:
    """Upgrade the tables of the database to this version and print the migrations that were
    applied. `serve` does the same at its start; this command serves releases that migrate in a
    separate step. It can run again, and in several places at once. Gateways of the previous
    version keep working, unless the command says otherwise. --finish also removes what only
    those gateways need; run it when none of them is left. A migration cannot be undone: with
    --backup, data that is about to be migrated is backed up first.

    examples:
      DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate migrate
      DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate migrate --backup FILE
      DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate migrate --finish
    """
    settings = _settings(options)
    from queuegate.gateway.command.serve import migrate_only

    backup = Path(options.backup) if options.backup else None
    return migrate_only(settings, finish=options.finish, backup=backup)


def _worker(options: argparse.Namespace) -> int:
    """Run the background workers without a gateway: web hooks, schedules, message moves, replays,
    retention, counters. The first process of each gateway runs the same workers. To disable web
    hooks and schedules there, start the gateways with QUEUE_HTTP_DELIVERY_ENABLED=false and
    QUEUE_SCHEDULE_ENABLED=false. Any number of workers can run. They need your own PostgreSQL.
    QUEUEGATE_OPERATIONS_ADDRESS is the address of their metrics and probes.

    example:
      DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate worker
    """
    settings = _settings_to_start(options)
    from queuegate.gateway.command.serve import work

    return work(settings)


def _doctor(options: argparse.Namespace) -> int:
    """Check everything that `serve` needs. Each check prints one line; a failed check names the
    remedy. Nothing is changed. Exits with 0 if all checks pass, else with 1. Takes the settings
    of `serve`.

    examples:
      queuegate doctor
      DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate doctor
    """
    settings = _settings_to_start(options)
    from queuegate.gateway.command.doctor import examine

    return examine(settings)


def _health(options: argparse.Namespace) -> int:
    """Check that a running gateway is ready. Exits with 0 if it is, else with 1. Health checks of
    containers can use this command instead of curl.

    examples:
      queuegate health
      queuegate health --port 4566
      queuegate health --url http://gateway:9324/livez
    """
    from queuegate.gateway.command.gateway_client import check_health, default_url, operators_url

    is_placed = options.port or options.hosts
    if options.url and is_placed:
        _exit_2("--url names the address: leave --host and --port out")
    if options.url:
        return check_health(options.url)
    settings = _settings(options)
    url = default_url(settings) if is_placed else operators_url(settings)
    return check_health(url + "/readyz", settings.tls_certificate)


def _config(options: argparse.Namespace) -> int:
    """Print every setting with its effective value. Secrets are hidden.

    examples:
      queuegate config
      queuegate config --table        all variables with defaults, as a Markdown table
    """
    if options.table:
        print(config_table.markdown_table())
        return 0
    for name, value in config_table.effective(_settings(options)):
        print(f"{name}={value}")
    return 0


def _settings(options: argparse.Namespace) -> config.Settings:
    """Return settings from environment and options; exit with 2 and one line if one is bad."""
    environ = config.process_environment()
    overrides = {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS}
    if overrides.get("hosts"):
        overrides["hosts"] = ",".join(overrides["hosts"])
    try:
        settings = config.Settings.from_env(environ, overrides)
    except config.BadSetting as refusal:
        _exit_2(str(refusal))
    for line in config_table.warnings_about(environ):
        print(f"queuegate: warning: {line}", file=sys.stderr)
    return settings


def _settings_to_start(options: argparse.Namespace) -> config.Settings:
    """Return the settings after checking the files and packages that they need."""
    from queuegate.gateway.process.key_files import check_ca_file, supplied_key, tls_certificate
    from queuegate.gateway.tracing.otlp_setup import check_installed

    settings = _settings(options)
    try:
        supplied_key(settings)
        check_ca_file(settings)
        tls_certificate(settings)
        check_installed(settings)
    except config.BadSetting as refusal:
        _exit_2(str(refusal))
    return _with_master_key(settings)


def _with_master_key(settings: config.Settings) -> config.Settings:
    from queuegate.gateway.process.key_files import with_master_key

    try:
        return with_master_key(settings)
    except config.BadSetting as refusal:
        _exit_2(str(refusal))


class _LaterCommand(NamedTuple):
    """A command whose module is imported only when the command is given."""

    name: str
    summary: str
    module: str
    settings_of: Callable[[argparse.Namespace], config.Settings] = _settings
    add_arguments: str = "add_arguments"

    def load(self, parser: CommandParser) -> None:
        """Import the module and add its arguments."""
        module = importlib.import_module(self.module)

        def run(options: argparse.Namespace) -> int:
            code: int = module.run(self.settings_of(options), options)
            return code

        getattr(module, self.add_arguments)(parser)
        parser.set_defaults(command=run)


_RESOURCES = "queuegate.gateway.command.resource_commands"
_BACKUPS = "queuegate.gateway.command.backup_command"
_STATES = "queuegate.gateway.command.states_command"
_SEEDS = "queuegate.gateway.command.seed_command"
_LOADED_LATER = (
    _LaterCommand(
        "deliveries",
        "list deliveries to web hooks, and redrive exhausted ones",
        "queuegate.gateway.command.deliveries_command",
    ),
    _LaterCommand(
        "keys",
        "create, list, change and delete API keys and access keys",
        "queuegate.gateway.command.keys_command",
        lambda options: _with_master_key(_settings(options)),
    ),
    _LaterCommand(
        "quotas",
        "limit resources and request rates of accounts and keys",
        "queuegate.gateway.command.quotas_command",
    ),
    _LaterCommand(
        "redrive",
        "move dead letters back to their source queues, or to another queue",
        "queuegate.gateway.command.redrive_command",
    ),
    *(
        _LaterCommand(noun, summary, _RESOURCES)
        for noun, summary in (
            ("queues", "list, create, pause and purge queues, send, peek, receive and redrive"),
            ("topics", "list, create, pause and delete topics, and publish"),
            ("schedules", "list, create, pause, run and delete schedules"),
            ("pause", "pause a queue, a topic or a subscription"),
            ("resume", "resume a paused queue, topic or subscription"),
        )
    ),
    _LaterCommand(
        "log",
        "inspect logs and groups, publish, seek, and manage dead letters",
        "queuegate.gateway.command.log_command",
    ),
    _LaterCommand(
        "slow",
        "show the slowest and the most refused queues and keys",
        "queuegate.gateway.command.slow_command",
    ),
    *(
        _LaterCommand(name, summary, module, add_arguments=f"add_{name}_arguments")
        for name, summary, module in (
            ("backup", "write all data of the database to a file", _BACKUPS),
            ("restore", "load a backup, or copy the data of another database", _BACKUPS),
            ("save", "save an account with its messages under a name", _STATES),
            ("load", "replace an account by a saved state", _STATES),
            ("states", "list saved states, or delete one", _STATES),
            (
                "apply",
                "create what a seed file, an elasticmq.conf or a CloudFormation template names",
                _SEEDS,
            ),
            ("export", "print the resources of an account as a seed file", _SEEDS),
        )
    ),
)
_NOT_SETTINGS = {"command", "url", "table"}


def _exit_2(message: str) -> NoReturn:
    print(f"queuegate: {message}", file=sys.stderr)
    sys.exit(2)


class _Version(argparse.Action):
    """Prints the version. The look-up takes longer than the rest of the start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"queuegate {version('queuegate')}")
        parser.exit()


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="queuegate",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="command", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], int], summary: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=summary,
            description=inspect.getdoc(run),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=run)
        return command

    serve = add("serve", _serve, "start the gateway, and a PostgreSQL if none is configured")
    _add_address(serve)
    add_database(serve)
    _add_serving(serve)
    upgrade = add("migrate", _migrate, "upgrade the database to this version")
    add_options(
        upgrade,
        """\
--finish       finish the upgrade: no gateway of an older version is running
--backup FILE  back up to this new file first, if there is data to migrate
""",
    )
    add_database(upgrade)
    worker = add("worker", _worker, "run the background workers without a gateway")
    add_database(worker)
    doctor = add("doctor", _doctor, "check everything that the gateway needs")
    _add_address(doctor)
    add_database(doctor)
    for later in _LOADED_LATER:
        command = commands.add_parser(
            later.name, help=later.summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.load = later.load
    health = add("health", _health, "check that a running gateway is ready")
    _add_address(health)
    health.add_argument("--url", help="URL to request (default: /readyz of the configured gateway)")
    shown = add("config", _config, "print the effective settings")
    add_options(shown, "--table  print a table of all variables")
    return parser


def _add_address(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--host",
        metavar="H",
        dest="hosts",
        action="append",
        help="address to listen on (default: localhost, which is 127.0.0.1 and ::1); separate "
        "several by commas, or repeat the option",
    )
    add_options(command, "--port P  port to listen on (default: 9324; 0: any free port)")


def _add_serving(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ephemeral",
        action="store_const",
        const="true",
        help="for tests: keep data in a temporary directory, without fsync, until exit; the clock "
        "can be moved, and the 60 s cool-downs of SQS are off",
    )
    command.add_argument(
        "--aws-cooldowns",
        action="store_const",
        const="true",
        help="with --ephemeral: enforce the 60 s cool-downs of SQS",
    )
    add_options(command, _SERVE_OPTIONS)
    command.add_argument(
        "--access-log", action="store_const", const="true", help="log one line for each request"
    )
    command.add_argument(
        "--prune",
        dest="config_prune",
        action="store_const",
        const="true",
        help="with --config: delete what the file does not name, except channels and keys",
    )
