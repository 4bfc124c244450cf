"""Time from a start to the first answered request, and memory of an idle server."""

from tests.bench.servers import CannotMeasure
from tests.bench.stage import Bench, Scenario, Stage, say

FIRST_STARTS = 3
STARTS = 5


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file."""
    return [Scenario("start", "start to first answered request, first ever and on data", _start)]


async def _start(bench: Bench) -> None:
    """Start servers one after the other beside the idle one of this run."""
    if not bench.owns_server:
        raise CannotMeasure("the server was started by somebody else")
    quick = bench.options.scale < 1
    for _ in range(1 if quick else FIRST_STARTS):
        data = bench.workshop.new_data_directory()
        server = bench.workshop.start_queuegate(data)
        server.stop()
        bench.figures.note("start/first", seconds=server.start_seconds)
    for _ in range(2 if quick else STARTS):
        server = bench.workshop.start_queuegate(data)
        server.stop()
        bench.figures.note("start/again", seconds=server.start_seconds)
    summary = bench.figures.summary()
    say(
        f"  start: first ever {summary['start/first']['seconds']:.2f} s, "
        f"on existing data {summary['start/again']['seconds']:.2f} s"
    )


def note_memory(stage: Stage, key: str) -> None:
    """Note the memory held now; called on the idle server before any load."""
    stage.server.tree.settle()
    memory = stage.server.tree.memory()
    stage.figures.note(key, **vars(memory))
    say(
        f"  {key}: gateway {memory.gateway_rss:.1f} MiB resident, "
        f"database {memory.database_pss:.1f} MiB proportional"
    )


def note_memory_peak(stage: Stage, key: str) -> None:
    """Note the most memory that was seen at the end of any measured run."""
    stage.figures.note(key, **vars(stage.memory_peak))
