"""A real Prometheus that scrapes gateways of a test, with the alerts that are shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from tests.faces.connections import fetch
from tests.ports import reserved_port
from tests.waiting import until

SHIPPED = Path(__file__).parents[1] / "deploy/prometheus"
_SOONER = {
    "QueuegateHeldTransaction": ("> 300", "> 3"),
    # Other jobs pause for longer.
    "QueuegateWorkerStopped": (
        "timestamp_seconds) > 900",
        'timestamp_seconds{worker="move"}) > 5',
    ),
}
"""Parts of expressions for which tests do not wait, and those in their place."""


class Prometheus:
    """Its API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now; return its samples."""
        samples: list[dict[str, Any]] = self._get("query", {"query": expression})["result"]
        return samples

    def firing(self) -> dict[str, dict[str, str]]:
        """Return the labels of alerts that fire, by the name of the alert; one of each."""
        found = self._get("alerts")["alerts"]
        return {one["labels"]["alertname"]: one["labels"] for one in found}

    def until_firing(self, alert: str) -> dict[str, str]:
        """Wait for an alert; return its labels."""
        return until(self.firing, lambda found: alert in found)[alert]

    def until_scraped(self) -> None:
        """Wait until all targets were scraped and the rules were evaluated."""
        until(lambda: self._get("targets")["activeTargets"], self._are_up)
        until(lambda: [rule["health"] for rule in self.rules()], lambda found: {*found} == {"ok"})

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with the outcome of their last evaluation."""
        [group] = self._get("rules")["groups"]
        rules: list[dict[str, Any]] = group["rules"]
        return rules

    @staticmethod
    def _are_up(targets: list[dict[str, str]]) -> bool:
        return bool(targets) and all(one["health"] == "up" for one in targets)

    def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        answer = fetch(self.url, f"/api/v1/{path}?{urlencode(parameters or {})}")
        assert answer.status == 200, answer.text
        return json.loads(answer.body)["data"]


@contextmanager
def scraping(*gateways: str) -> Iterator[Prometheus]:
    """Scrape these URLs once a second, and let each alert fire as soon as its expression holds.

    Prometheus looks for its targets every 5 s, so the first samples take as long.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no Prometheus (Debian: apt-get install prometheus)")
    with (
        reserved_port() as port,
        tempfile.TemporaryDirectory(prefix="queuegate-prometheus-") as name,
    ):
        folder = Path(name)
        (folder / "rules.yaml").write_text(yaml.safe_dump(_eager_rules()))
        (folder / "prometheus.yml").write_text(yaml.safe_dump(_configuration(gateways)))
        command = [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
        process = subprocess.Popen(command)
        try:
            prometheus = Prometheus(f"http://127.0.0.1:{port}")
            until(lambda: _answers(process, prometheus))
            yield prometheus
        finally:
            process.terminate()
            process.wait(60)


def _answers(process: subprocess.Popen[bytes], prometheus: Prometheus) -> bool:
    assert process.poll() is None, "Prometheus ended"
    try:
        return fetch(prometheus.url, "/-/ready").status == 200
    except OSError:
        return False


def _eager_rules() -> dict[str, Any]:
    """Return the shipped alerts without their patience."""
    rules: dict[str, Any] = yaml.safe_load((SHIPPED / "rules/queuegate.yaml").read_text())
    [group] = rules["groups"]
    for rule in group["rules"]:
        rule["for"] = "0s"
        shipped, sooner = _SOONER.get(rule["alert"], ("", ""))
        assert shipped in rule["expr"]
        rule["expr"] = rule["expr"].replace(shipped, sooner) if shipped else rule["expr"]
    return rules


def _configuration(gateways: tuple[str, ...]) -> dict[str, Any]:
    jobs = [
        {
            "job_name": scheme,
            "scheme": scheme,
            # Certificates of tests are their own authorities.
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [
                {"targets": [urlsplit(url).netloc for url in gateways if url.startswith(scheme)]}
            ],
        }
        for scheme in {urlsplit(url).scheme for url in gateways}
    ]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": jobs,
    }
