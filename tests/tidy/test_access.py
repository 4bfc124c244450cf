"""Only ``operations/access/authorization.py`` finds queues and topics of callers, since it checks
rights; and nobody forgets to walk what can be asked."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from queuegate.gateway.configuration.values import FACE_NAMES
from queuegate.gateway.pages.page_paths import PREFIXES, is_public
from tests.faces.everything import ENDPOINTS, PAGES
from tests.tidy.source import Source, planted, product

_ACCESS = "gateway/operations/access/authorization.py"
# What the caches of queues and topics are asked. `current_queue` looks again at a queue that was
# found; storage is nobody's to import but for operations (test_imports.py).
_FINDS = {
    "queues": {
        "find",
        "find_many",
        "find_by_id",
        "find_by_public_id",
        "by_public_id",
        "cached",
        "by_url",
    },
    "topics": {"find", "by_arn", "event_audience"},
    "logs": {"find", "cached"},
}
# Where nobody asks for a queue or topic by name: what has it is what the caller was asked about.
WITHOUT_A_CALLER = {
    "gateway/operations/logs/queue_feeds.py": "the queue of a group, whose maker had the right",
    "gateway/operations/queues/queues.py": "dead-letter queues and lists",
    "gateway/operations/queues/receives.py": "the same queue again",
    "gateway/operations/schedules/dispatch.py": "schedules that fire",
    "gateway/operations/topics/topic_subscriptions.py": "deliveries of a topic",
    "gateway/seeding/resource_kinds.py": "an administrator's, whose queues are read",
    "gateway/seeding/seeds.py": "the same",
    "gateway/operations/topics/filter_trials.py": "queues of a topic, which are not shown",
    "gateway/operations/topics/fan_out.py": "copies for the logs of a topic",
    "gateway/operations/topics/topic_publishing.py": "copies for the queues of a topic",
}


def finds(source: Source) -> Iterator[str]:
    """Yield the places that ask a cache of the engine for a queue or a topic."""
    for node in source.nodes:
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Attribute):
            continue
        cache, owner = node.value.attr, node.value.value
        name = getattr(owner, "attr", None) or getattr(owner, "id", "")
        if name in {"engine", "_engine"} and node.attr in _FINDS.get(cache, ()):
            yield f"{source}:{node.lineno} asks engine.{cache}.{node.attr}"


def test_nobody_else_finds_queues_and_topics() -> None:
    wrong = [
        line
        for source in product()
        if str(source) != _ACCESS and str(source) not in WITHOUT_A_CALLER
        for line in finds(source)
    ]
    assert wrong == []


def test_nobody_else_grants_a_topic() -> None:
    granting = {str(one) for one in product() if "GrantedTopic(" in one.text}
    assert granting == {_ACCESS}


def test_each_exception_is_one() -> None:
    found = {str(source) for source in product() if [*finds(source)]}
    assert found >= WITHOUT_A_CALLER.keys()


def test_the_check_can_fail() -> None:
    assert [*finds(planted("async def f(): await call.engine.queues.find(a, b, c)"))]
    assert [*finds(planted("x = self._engine.topics.by_arn[arn]"))]
    assert not [*finds(planted("x = queues.find(tx, a, b, c)"))]


def test_strangers_are_kept_from_every_face_and_page() -> None:
    """tests/faces/test_strangers.py and test_access.py ask for every face and page."""
    assert ENDPOINTS.keys() - {"logs"} | {"aws", "text", "log"} == {*FACE_NAMES}
    named = {
        path
        for source in product()
        if source.path.is_relative_to("gateway/pages")
        # Settings refuse these together with signatures.
        and source.path.name != "swap_in_pages.py"
        for text in source.strings
        # Endpoints have a method before the path.
        for path in [str(text.value).rpartition(" ")[2]]
        if path.startswith(PREFIXES) and path not in PREFIXES
    }
    assert {path for path in named if not is_public(path)} == PAGES.keys()
