"""`queuegate apply`, `queuegate export` and seed files of `queuegate serve`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from queuegate.gateway.command.command_line import add_gateway, add_options, counted, fail, plain
from queuegate.gateway.command.database_session import write_private
from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.configuration.settings import BadSetting, Settings, process_environment
from queuegate.gateway.pages.page_paths import SEED
from queuegate.gateway.seeding.located_files import Mistakes
from queuegate.gateway.seeding.resource_kinds import SeedResource
from queuegate.gateway.seeding.seed_files import SeedFile, toml_of
from queuegate.gateway.seeding.seeds import SeedResult
from queuegate.storage.storage_errors import Unavailable

_APPLY = """\
Create and change what a file names in a running gateway: a seed file (TOML or YAML), an
`elasticmq.conf`, or a CloudFormation template with resources of SQS, SNS and Scheduler. All of it
is applied, or after a mistake nothing. A repetition changes nothing. Messages are sent to queues
that are created.

examples:
  queuegate apply queues.toml
  queuegate apply template.yaml --url http://127.0.0.1:9324
  queuegate apply queues.toml --prune --dry-run
"""
_EXPORT = """\
Print the queues, topics, subscriptions, schedules, channels, logs and keys of an account in a
region as a seed file, without messages and secrets.

examples:
  queuegate export > queues.toml
  queuegate export --url http://127.0.0.1:9324 --account 111122223333 --region eu-west-1
"""
StartWithSeed = Callable[[Settings, str], Awaitable[None]]
"""Applies a file to the database of a URL, for a gateway with settings whose port is bound."""

_PATIENCE_SECONDS = 600.0
"""Ten thousand queues take tens of seconds."""
_log = logging.getLogger("queuegate.seed")


def add_apply_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate apply`."""
    command.description = _APPLY
    add_options(
        command,
        """\
file FILE  seed file, elasticmq.conf or CloudFormation template
--prune    delete queues, topics, subscriptions, schedules and logs that the file does not name
--dry-run  print what would change, and change nothing
""",
    )
    add_gateway(command)


def add_export_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate export`."""
    command.description = _EXPORT
    command.set_defaults(file=None)
    add_gateway(command)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Apply a file, or export an account; return 0, or 1 with all mistakes on stderr."""
    client = GatewayClient(settings, options, "apply" if options.file else "export")
    client.patience_seconds = _PATIENCE_SECONDS
    if options.file is None:
        found = client.call("GET", SEED)
        resources = msgspec.convert(found["resources"], list[SeedResource])
        print(toml_of((found["account"], found["region"]), resources), end="")
        return 0
    try:
        where = client.call("POST", SEED, {})
        read = _read(Path(options.file), (where["account"], where["region"]))
        seed = read.seed
        seed.prune, seed.dry_run = options.prune, options.dry_run or bool(read.file.mistakes)
        answer = client.call("POST", SEED, msgspec.json.encode(seed))
        _finish(
            read, msgspec.convert(answer, SeedResult, strict=False), lambda line: print(plain(line))
        )
    except Mistakes as mistakes:
        return _print_mistakes(mistakes)
    return 0


def _read(path: Path, home: tuple[str, str]) -> SeedFile:
    read = SeedFile(path, home, process_environment())
    for warning in read.file.warnings:
        print(f"queuegate: warning: {plain(warning)}", file=sys.stderr)
    return read


def _finish(read: SeedFile, result: SeedResult, note: Callable[[str], None]) -> None:
    """Print changes and write secrets. Raises Mistakes."""
    read.blame(result.faults)
    for line in result.changes:
        note(line)
    for number, secret in result.secrets.items():
        path = read.secret_files.get(number)
        if path is None:
            note(secret.rstrip("\n"))
        else:
            write_private(path, secret)


def seed_of_settings(settings: Settings, path: Path) -> StartWithSeed:
    """Read the file of QUEUEGATE_CONFIG; return the function that applies it. Raises BadSetting,
    after all mistakes on stderr."""
    try:
        read = _read(path, (settings.account_id, settings.region))
    except Mistakes as mistakes:
        raise _not_started(path, mistakes) from None
    for number, one in enumerate(read.seed.resources):
        if one.kind == "key" and number not in read.secret_files:
            text = "needs secret_file, where the secret of the new key is written"
            read.file.refuse(read.keys[number][""], text)
    read.seed.prune, read.seed.dry_run = settings.config_prune, bool(read.file.mistakes)

    async def start(settings: Settings, dsn: str) -> None:
        from queuegate.gateway.http.listening import links_url
        from queuegate.gateway.operations.runtime import account_contents
        from queuegate.gateway.process.assembly import open_engine
        from queuegate.gateway.seeding.seeds import apply_seed
        from queuegate.storage.account_states import SEED as SEED_STATE

        links = links_url(settings) or f"http://localhost:{settings.port}"
        try:
            async with open_engine(settings, dsn) as engine:
                result = await apply_seed(settings, engine, read.seed, links)
                if settings.ephemeral and not result.faults:
                    for account_id in {account_id for account_id, _ in read.seed.places}:
                        await account_contents.save(engine, account_id, SEED_STATE)
            _finish(read, result, _log.info)
        except Mistakes as mistakes:
            raise _not_started(path, mistakes) from None
        except Unavailable as error:
            raise BadSetting(f"{path} cannot be applied: {error}") from None

    return start


def _not_started(path: Path, mistakes: Mistakes) -> BadSetting:
    _print_mistakes(mistakes)
    count = counted(len(mistakes.found), "mistake")
    return BadSetting(f"the gateway does not start: {count} in {path}")


def _print_mistakes(mistakes: Mistakes) -> int:
    """Print all mistakes of a file; return 1, the exit code."""
    for one in mistakes.found:
        fail(plain(one))
    return 1
