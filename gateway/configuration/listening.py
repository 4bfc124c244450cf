"""The settings of where a gateway listens, and of who is believed what at its door."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from queuegate.gateway.configuration import values as texts
from queuegate.gateway.configuration.fields import BASE_URL, FILE, Kind, number, setting, word
from queuegate.gateway.configuration.values import Network, is_loopback
from queuegate.protocol.queue_urls import RegionIn

_DEFAULT_PORT = 9324


@dataclass(frozen=True)
class ListeningSettings:
    """The first part of ``Settings``."""

    hosts: tuple[str, ...] = setting(
        ("localhost",),
        Kind("addresses or host names, separated by commas", texts.host_names, texts.format_list),
        "Where to listen. localhost is 127.0.0.1 and ::1; 0.0.0.0 is every interface, "
        ":: with IPv6, too.",
        names="QUEUEGATE_HOST",
    )
    port: int = setting(_DEFAULT_PORT, number(0, 65535), "Port to listen on; 0 takes a free one.")
    base_url: str | None = setting(
        None,
        BASE_URL,
        "Start of queue URLs in answers. Unset: scheme and host of each request.",
        names="QUEUEGATE_BASE_URL QUEUE_BASE_URL",
    )
    queue_urls: RegionIn = setting(
        "none",
        word("none", "path", "host"),
        "The part of a queue URL that names the region. none: the URL is /<account>/<name> and "
        "the region comes from the signature; path: /queue/<region>/<account>/<name> unless the "
        "region is QUEUEGATE_REGION; host: sqs.<region>.<host>, as on AWS.",
    )
    faces: tuple[str, ...] = setting(
        texts.FACE_NAMES,
        Kind(f"some of {', '.join(texts.FACE_NAMES)}", texts.face_names, texts.format_list),
        "The APIs that are there, separated by commas. Pages for operators always are.",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        Kind("host names, separated by commas", texts.parse_hosts, texts.format_list),
        "More names that a gateway on loopback answers to, with their sub-domains.",
    )
    allowed_origins: tuple[str, ...] = setting(
        (),
        Kind(
            "scheme://host[:port] of pages, separated by commas, or *",
            texts.parse_origins,
            texts.format_list,
        ),
        "Web pages that may ask this gateway from a browser, beside its own.",
    )
    tls_certificate: Path | None = setting(
        None,
        FILE,
        "Certificate, in PEM, with those between it and its authority: then the port speaks TLS. "
        "Exchanged files are taken within seconds.",
    )
    tls_key: Path | None = setting(None, FILE, "Key, in PEM and without password, of it.")
    operations_address: tuple[tuple[str, ...], int] | None = setting(
        None,
        Kind("host:port", texts.hosts_and_port, texts.format_hosts_and_port),
        "Where /metrics, /livez and /readyz are, plainly over HTTP. Unset: where everything is.",
    )
    trusted_proxies: tuple[Network, ...] = setting(
        (),
        Kind(
            "addresses and networks such as 10.0.0.0/8, separated by commas",
            texts.parse_networks,
            texts.format_networks,
        ),
        "Proxies whose X-Forwarded-For, -Proto and -Host, or Forwarded, are believed. Those of "
        "everybody else are ignored.",
    )

    @property
    def scheme(self) -> str:
        """What the port speaks."""
        return "http" if self.tls_certificate is None else "https"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches a gateway with these settings."""
        return all(is_loopback(host) for host in self.hosts)
