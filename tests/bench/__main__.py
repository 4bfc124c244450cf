"""`python -m tests.bench`: measure a gateway, show a run of the history, compare two."""

import argparse
import os
import resource
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from tests.bench import (
    backlog,
    faces,
    fair_queues,
    fairness,
    history,
    hot,
    log_groups,
    log_scale,
    logs,
    native,
    neighbours,
    overload,
    publishing,
    push,
    schedules,
    signing,
    starting,
    waiting,
    webhooks,
)
from tests.bench.client import BadAnswer
from tests.bench.selfcheck import check, check_topics
from tests.bench.servers import (
    CannotMeasure,
    Server,
    Workshop,
    last_lines,
    postgres_version,
    running_server,
)
from tests.bench.stage import Bench, Figures, Options, Scenario, Stage, say
from tests.bench.tables import comparison, markdown, report, turns

_OPEN_FILES = 16_384
_CASES = (*hot.CASES, *publishing.CASES, *native.CASES)


def every_scenario() -> list[Scenario]:
    """Return all scenarios in the order in which they run; those of the hot path come first."""
    return [
        *hot.scenarios(_CASES),
        *publishing.scenarios(),
        *signing.scenarios(),
        *faces.scenarios(),
        *logs.scenarios(),
        *log_groups.scenarios(),
        *log_scale.scenarios(),
        *waiting.scenarios(),
        *push.scenarios(),
        *neighbours.scenarios(),
        *fairness.scenarios(),
        *overload.scenarios(),
        *fair_queues.scenarios(),
        *webhooks.scenarios(),
        *schedules.scenarios(),
        *starting.scenarios(),
        *backlog.scenarios(),
    ]


async def measure(bench: Bench, names: set[str], beside: Stage | None = None) -> None:
    """Run the scenarios named; a scenario that cannot be measured is named, the others go on.

    What ``beside`` is measured on is the hot path alone.
    """
    for stage in (bench.queuegate, bench.moto):
        if stage is not None:
            starting.note_memory(stage, ("moto " if stage.is_moto else "") + "memory/idle")
            await check(stage)
            if any(case.name in names for case in publishing.CASES):
                await check_topics(stage)
    hot_names = {case.name for case in _CASES}
    chosen = [scenario for scenario in every_scenario() if scenario.name in names]
    hot_ones = [scenario for scenario in chosen if scenario.name in hot_names]
    for turn in range(bench.options.rounds if hot_ones else 0):
        say(f"round {turn + 1} of {bench.options.rounds}")
        for scenario in hot_ones:
            await _in_turns(bench, scenario, beside, is_first=turn % 2 == 0)
    if hot_ones:
        starting.note_memory_peak(bench.queuegate, "memory/load")
        await hot.measure_moto(bench, [case for case in _CASES if case.name in names])
        publishing.note_derived(bench.figures)
    for scenario in chosen:
        if scenario in hot_ones:
            continue
        say(f"{scenario.name}: {scenario.about}")
        try:
            await scenario.run(bench)
        except (BadAnswer, CannotMeasure) as error:
            say(f"  {scenario.name} not measured: {error}")


async def _in_turns(
    bench: Bench, scenario: Scenario, beside: Stage | None, *, is_first: bool
) -> None:
    """Run a scenario, with one number of connections after another on both gateways: what else the
    machine does falls on both."""
    if beside is None:
        await scenario.run(bench)
        return
    both = (beside, bench.queuegate) if is_first else (bench.queuegate, beside)
    for connections in bench.options.connections:
        options = replace(bench.options, connections=(connections,))
        for stage in both:
            is_ours = stage is bench.queuegate
            await scenario.run(
                replace(bench, queuegate=stage, options=options, owns_server=is_ours)
            )


def run(arguments: argparse.Namespace) -> int:
    """Measure as the arguments say; print the tables, add a line to the history."""
    names = _chosen_names(arguments.scenario)
    options = _options(arguments)
    figures = Figures()
    workshop = Workshop(arguments.data, arguments.serve_argument)
    try:
        facts = history.machine(workshop.directory)
        server, moto = _servers(arguments, workshop, figures)
        facts["postgresql"] = postgres_version(server)
        if arguments.pin:
            _pin([stage for stage in (server, moto) if stage is not None])
        bench = Bench(
            Stage(server, options, figures),
            Stage(moto, options, figures) if moto is not None else None,
            workshop,
            options,
            figures,
            owns_server=server.process is not None,
        )
        beside = None
        if arguments.beside:
            checkout = arguments.beside.resolve()
            other = workshop.start_queuegate(workshop.new_data_directory(), checkout=checkout)
            beside = Stage(other, options, Figures())
        try:
            uvloop.run(measure(bench, names, beside))
        except BadAnswer as error:
            raise CannotMeasure(f"{error}\n{last_lines(server.log)}") from None
    finally:
        workshop.close()
    entry: dict[str, Any] = {
        "commit": history.commit(),
        "date": history.now(),
        "machine": facts,
        "options": asdict(options) | {"pinned": arguments.pin},
        "figures": figures.summary(),
        "cpu_of_rounds": figures.every_round("total_us"),
    }
    if not arguments.no_history:
        history.append(entry)
    _show(entry, as_markdown=arguments.markdown)
    if beside is not None:
        print(turns(beside.figures, figures))
    return 0


def main() -> int:
    """Parse the command line and run; 1 with a reason on stderr when nothing could be measured."""
    words = sys.argv[1:]
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words = ["run", *words]
    arguments = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, _leave)
    try:
        if arguments.command == "compare":
            before, after = history.find(arguments.before), history.find(arguments.after)
            names = (before["commit"][:13], after["commit"][:13])
            print(comparison(before["figures"], after["figures"], names))
            return 0
        if arguments.command == "show":
            _show(history.find(arguments.name), as_markdown=arguments.markdown)
            return 0
        if arguments.list:
            for scenario in every_scenario():
                print(f"{scenario.name:18}{scenario.about}")
            return 0
        return run(arguments)
    except CannotMeasure as error:
        say(f"bench: {error}")
        return 1


def _servers(
    arguments: argparse.Namespace, workshop: Workshop, figures: Figures
) -> tuple[Server, Server | None]:
    if arguments.url:
        if not arguments.pid:
            raise CannotMeasure("--url needs --pid, the process id of the gateway")
        server = running_server(arguments.url, arguments.pid, arguments.database_pid)
    else:
        server = workshop.start_queuegate(arguments.data_of_server or workshop.new_data_directory())
        say(f"queuegate answers at port {server.address[1]} after {server.start_seconds:.2f} s")
    if arguments.no_moto:
        return server, None
    moto = workshop.start_moto()
    figures.note("moto start/first", seconds=moto.start_seconds)
    say(f"moto answers at port {moto.address[1]} after {moto.start_seconds:.2f} s")
    return server, moto


def _pin(servers: list[Server]) -> None:
    """Give the last core to this process and the others to the servers."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise CannotMeasure("--pin needs two cores")
    os.sched_setaffinity(0, {cores[-1]})
    for server in servers:
        server.tree.pin(set(cores[:-1]))


def _options(arguments: argparse.Namespace) -> Options:
    options = Options().quick() if arguments.quick else Options()
    given = {
        "connections": arguments.connections,
        "body_bytes": arguments.bodies,
        "rounds": arguments.rounds,
        "depth": arguments.depth,
        "churn": arguments.churn,
        "queues": arguments.queues,
    }
    options = replace(options, **{name: value for name, value in given.items() if value})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return options


def _chosen_names(names: list[str]) -> set[str]:
    known = [scenario.name for scenario in every_scenario()]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise CannotMeasure(f"no scenario {', '.join(unknown)}; there are: {', '.join(known)}")
    return set(names or known)


def _show(entry: dict[str, Any], *, as_markdown: bool) -> None:
    machine = entry["machine"]
    print(
        f"commit {entry['commit']}, {entry['date']}, {machine['cores']} cores of {machine['cpu']}, "
        f"Python {machine['python']}, {machine['postgresql']}, fsync {machine['fsync_ms']} ms on "
        f"{machine['file_system']}\n{_smaller(entry['options'])}"
    )
    print(markdown(entry["figures"]) if as_markdown else report(entry["figures"]))


def _smaller(options: dict[str, Any]) -> str:
    """Say what of a run was not as the figures to reach want it; empty when all was."""
    full = asdict(Options())
    names = ("rounds", "depth", "churn", "queues", "groups", "polls", "scale")
    changed = [f"{name} {options[name]:g}" for name in names if options[name] != full[name]]
    return f"not the full run: {', '.join(changed)}\n" if changed else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _leave(*_: object) -> NoReturn:
    raise SystemExit(143)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run_ = commands.add_parser("run", help="measure (the default: the word may be left out)")
    add = run_.add_argument
    add("--list", action="store_true", help="list the scenarios and end")
    add("--scenario", nargs="+", default=[], metavar="NAME", help="only these scenarios")
    add("--quick", action="store_true", help="one round, 64 connections, 1 KB, short backlogs")
    add("--rounds", type=int, help="rounds of the hot path; the median counts (3)")
    add("--connections", type=_numbers, help="comma-separated (1,16,64,256)")
    add("--bodies", type=_numbers, help="bytes, comma-separated (100,1024)")
    add("--depth", type=int, help="messages in the deep queue (1000000)")
    add("--churn", type=int, help="messages that come and go (1000000)")
    add("--queues", type=int, help="queues of the scenario of that name (10000)")
    add("--no-moto", action="store_true", help="do not measure moto beside")
    add("--beside", type=Path, help="another checkout; its hot path is measured in turn with ours")
    add("--pin", action="store_true", help="client on the last core, servers on the others")
    add("--data", type=Path, help="directory for all data (the system's temporary one)")
    add("--data-of-server", type=Path, help="existing data of the gateway to measure on")
    add("--serve-argument", action="append", default=[], help="passed on to `queuegate serve`")
    add("--url", help="measure a running gateway, http://host:port; needs --pid")
    add("--pid", type=int, help="process id of the running gateway")
    add("--database-pid", type=int, help="process id of its PostgreSQL, when not its child")
    add("--markdown", action="store_true", help="print the table of the README")
    add("--no-history", action="store_true", help="do not add a line to history.jsonl")
    show = commands.add_parser("show", help="print a run of the history")
    show.add_argument("name", nargs="?", default="-1", help="index or commit (the last run)")
    show.add_argument("--markdown", action="store_true", help="print the table of the README")
    compare = commands.add_parser("compare", help="ratios between two runs of the history")
    compare.add_argument("before", help="index or commit")
    compare.add_argument("after", help="index or commit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
