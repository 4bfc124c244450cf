"""`queuegate slow`: the slowest and the most refused, from the metrics of a running gateway."""

from __future__ import annotations

import argparse
import time
from math import isfinite
from typing import Any

from queuegate.gateway.command.command_line import (
    CommandRefused,
    add_gateway,
    add_json,
    add_limit,
    add_options,
    print_lines,
    print_table,
    whole_number,
)
from queuegate.gateway.command.gateway_client import GatewayClient, operators_url
from queuegate.gateway.configuration.settings import Settings

_DESCRIPTION = """\
Show the slowest queues and the most refused queues, keys and quotas, by the metrics of a running
gateway: since its start, or during some seconds. Times are p99 in milliseconds: of sends, receives
and deletes in the database, and of the age at the first receive. With sigv4 the command needs
QUEUEGATE_OPERATIONS_ADDRESS or the key of an administrator.

examples:
  queuegate slow
  queuegate slow --seconds 10 --limit 5
  queuegate slow --url http://10.0.0.7:9325 --json
"""
_TIMES = {
    "queue_message_send_duration_seconds_bucket": "send",
    "queue_message_receive_duration_seconds_bucket": "receive",
    "queue_message_delete_duration_seconds_bucket": "delete",
    "queue_message_age_at_receive_seconds_bucket": "age",
}
_REFUSED = {
    "queue_full_total": ("queue", "queue is full"),
    "dead_letters_total": ("queue", "dead letters"),
    "requests_throttled_total": ("key", "over the rate of the key"),
    "quota_refusals_total": ("quota", "over the quota"),
}
_PLACE = ("queue", "account", "region")
_SLOW = (*_PLACE, *_TIMES.values())
_QUANTILE = 0.99

Samples = dict[tuple[str, ...], float]
"""By metric, queue, key or quota, account, region and bound of a bucket."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate slow`."""
    command.description = _DESCRIPTION
    text = "--seconds N  observe so many seconds (default: since the start of the gateway)"
    add_options(command, text, seconds=whole_number)
    add_limit(command)
    add_json(command)
    add_gateway(command)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Print two tables, or one JSON object a line; return 0. Raises CommandRefused."""
    if not options.url and settings.operations_address is not None:
        options.url = operators_url(settings)
    gateway = GatewayClient(settings, options, "slow")
    before: Samples = {}
    if options.seconds:
        before = _samples(gateway)
        time.sleep(options.seconds)
    samples = {key: n - before.get(key, 0.0) for key, n in _samples(gateway).items()}
    slow = _slowest(samples)[: options.limit]
    refused = _most_refused(samples)[: options.limit]
    if options.json:
        print_lines([*slow, *refused])
        return 0
    heads = [name if name in _PLACE else f"{name} ms" for name in _SLOW]
    _table(heads, slow, "No queue had requests.")
    print()
    _table(["refused", "account", "reason", "count"], refused, "Nothing was refused.")
    return 0


def _samples(gateway: GatewayClient) -> Samples:
    from prometheus_client.parser import text_string_to_metric_families

    found: Samples = {}
    for family in text_string_to_metric_families(gateway.fetch("GET", "/metrics").decode()):
        for sample in family.samples:
            name, labels = sample.name.removeprefix("queuegate_"), sample.labels
            if name in _TIMES or name in _REFUSED:
                if "account" not in labels:
                    raise CommandRefused("the gateway shows totals only: see `--help`")
                subject = labels[_REFUSED.get(name, ("queue",))[0]], labels["account"]
                key = name, *subject, labels.get("region", ""), labels.get("le", "")
                found[key] = sample.value
    return found


def _slowest(samples: Samples) -> list[dict[str, Any]]:
    """Return the queues with their times, the slowest in the database first."""
    queues: dict[tuple[str, ...], dict[str, list[tuple[float, float]]]] = {}
    for (name, *queue, bound), value in samples.items():
        if name in _TIMES:
            times = queues.setdefault(tuple(queue), {metric: [] for metric in _TIMES})
            times[name].append((float(bound), value))
    rows = [
        dict(zip(_SLOW, (*queue, *map(_quantile, times.values())), strict=True))
        for queue, times in queues.items()
    ]
    used = [row for row in rows if any(row[verb] is not None for verb in _TIMES.values())]
    return sorted(used, key=lambda row: -max(row[verb] or 0 for verb in _SLOW[3:6]))


def _most_refused(samples: Samples) -> list[dict[str, Any]]:
    rows = [
        {"subject": subject, "account": account, "reason": _REFUSED[name][1], "count": int(value)}
        for (name, subject, account, *_), value in samples.items()
        if name in _REFUSED and value > 0
    ]
    return sorted(rows, key=lambda row: -row["count"])


def _quantile(buckets: list[tuple[float, float]]) -> float | None:
    """Return the p99 in milliseconds, between the bounds of its bucket; None without a sample."""
    lower, below = 0.0, 0.0
    wanted = max((count for _, count in buckets), default=0.0) * _QUANTILE
    for bound, count in sorted(buckets):
        if count >= wanted > 0:
            share = (wanted - below) / (count - below)
            return (lower + (bound - lower) * share if isfinite(bound) else lower) * 1e3
        lower, below = bound, count
    return None


def _table(heads: list[str], found: list[dict[str, Any]], empty: str) -> None:
    if not found:
        print(empty)
        return
    cells = [["-" if cell is None else cell for cell in one.values()] for one in found]
    shown = [[f"{c:,.1f}" if isinstance(c, float) else str(c) for c in row] for row in cells]
    print_table([head.upper() for head in heads], shown)
