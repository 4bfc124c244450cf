"""Requests as bytes, as boto3 1.44 puts them on the wire, rendered before the clock runs.

The signature is shaped as a real one and not computed: computing it would cost the load process as
much as the request costs the gateway. Signatures and invocation ids differ between requests, so
that nothing that caches whole header values looks better here than it is.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import cycle
from typing import NamedTuple
from urllib.parse import quote_plus, urlencode

VARIANTS = 64
ACCESS_KEY = "AKIABENCH00000000000"
_AGENT = (
    "Boto3/1.44.5 md/Botocore#1.44.5 ua/2.1 os/linux#6.18.44 md/arch#x86_64 lang/python#3.11.7 "
    "md/pyimpl#CPython m/N,Z,E,b,e cfg/retry-mode#standard Botocore/1.44.5"
)
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789    "

_VERSIONS = {"sns": "2010-03-31", "sqs": "2012-11-05"}


class Wire(NamedTuple):
    """The headers that belong to one service and protocol."""

    service: str
    lines: tuple[str, ...]
    """Header lines before the user agent; `{action}` stands for the action."""
    signed: str


SQS_JSON = Wire(
    "sqs",
    (
        "X-Amz-Target: AmazonSQS.{action}",
        "Content-Type: application/x-amz-json-1.0",
        "x-amzn-query-mode: true",
    ),
    "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode",
)
SNS_JSON = Wire(
    "sns",
    ("X-Amz-Target: AmazonSNS.{action}", "Content-Type: application/x-amz-json-1.0"),
    "content-type;host;x-amz-date;x-amz-target",
)
SNS_QUERY = Wire(
    "sns",
    ("Content-Type: application/x-www-form-urlencoded; charset=utf-8",),
    "content-type;host;x-amz-date",
)
SQS_QUERY = Wire("sqs", SNS_QUERY.lines, SNS_QUERY.signed)


def message_body(size_bytes: int, seed: int = 1) -> str:
    """Return a text of exactly so many ASCII bytes that no JSON writer has to escape."""
    return "".join(random.Random(seed).choices(_ALPHABET, k=size_bytes))


class Renderer:
    """Renders requests for one server; hands out header variants in turn."""

    def __init__(self, host: str, port: int) -> None:
        self._authority = f"{host}:{port}"
        self._random = random.Random(7)
        self._heads: dict[tuple[Wire, str], Iterator[bytes]] = {}

    def request(self, action: str, members: Mapping[str, object], wire: Wire = SQS_JSON) -> bytes:
        """Return the whole request of one action over JSON 1.0, of SQS unless said."""
        return self.wrap(action, json.dumps(members).encode(), wire)

    def form(self, action: str, parameters: Mapping[str, str], wire: Wire = SNS_QUERY) -> bytes:
        """Return the whole request of one action over Query, of SNS unless said."""
        return self.wrap(action, _form(action, parameters, wire).encode(), wire)

    def wrap(self, action: str, body: bytes, wire: Wire = SQS_JSON) -> bytes:
        """Return a request around a body that is encoded already."""
        return b"%b%d\r\n\r\n%b" % (self.head(action, wire), len(body), body)

    def head(self, action: str, wire: Wire = SQS_JSON) -> bytes:
        """Return one of VARIANTS heads of this action, up to the number of Content-Length."""
        return next(self.heads(action, wire))

    def heads(self, action: str, wire: Wire = SQS_JSON) -> Iterator[bytes]:
        """Return all of them, in turn and without an end."""
        heads = self._heads.get((wire, action))
        if heads is None:
            heads = cycle([self._head(action, wire) for _ in range(VARIANTS)])
            self._heads[(wire, action)] = heads
        return heads

    def numbered(
        self, action: str, members: Mapping[str, object], *, fields: Sequence[str]
    ) -> Callable[..., bytes]:
        """Return a function of one number per field; each field stands for 12 digits.

        A field may occur in several values. The length stays the same, so that while load runs only
        the numbers are formatted.
        """
        return self._numbered(json.dumps(members), fields, lambda: self.head(action))

    def numbered_form(
        self, action: str, parameters: Mapping[str, str], *, fields: Sequence[str]
    ) -> Callable[..., bytes]:
        """Return the same for an SNS action over Query."""
        quoted = [quote_plus(name) for name in fields]
        text = _form(action, parameters, SNS_QUERY)
        return self._numbered(text, quoted, lambda: self.head(action, SNS_QUERY))

    @staticmethod
    def _numbered(
        text: str, fields: Sequence[str], head: Callable[[], bytes]
    ) -> Callable[..., bytes]:
        pattern = re.compile("|".join(re.escape(name) for name in fields))
        order = [fields.index(name) for name in pattern.findall(text)]
        parts = [part.replace("%", "%%") for part in pattern.split(text)]
        template = "%012d".join(parts).encode()
        length = len(template % tuple(0 for _ in order))
        heads = cycle([b"%b%d\r\n\r\n" % (head(), length) for _ in range(VARIANTS)])
        if order == list(range(len(fields))):
            return lambda *numbers: next(heads) + template % numbers
        return lambda *numbers: next(heads) + template % tuple(numbers[index] for index in order)

    def deletion(self, queue_url: str) -> Callable[[bytes], bytes]:
        """Return a function that renders DeleteMessage for a handle as it stood in an answer."""
        start = f'{{"QueueUrl": {json.dumps(queue_url)}, "ReceiptHandle": "'.encode()
        fixed = len(start) + 2
        heads = self.heads("DeleteMessage")

        def render(handle: bytes) -> bytes:
            return b'%b%d\r\n\r\n%b%b"}' % (next(heads), fixed + len(handle), start, handle)

        return render

    def batch_deletion(self, queue_url: str, handles: Sequence[bytes]) -> bytes:
        """Return DeleteMessageBatch for up to ten receipt handles."""
        entries = b", ".join(
            b'{"Id": "%d", "ReceiptHandle": "%b"}' % (index, handle)
            for index, handle in enumerate(handles)
        )
        start = f'{{"QueueUrl": {json.dumps(queue_url)}, "Entries": ['.encode()
        return self.wrap("DeleteMessageBatch", start + entries + b"]}")

    def _head(self, action: str, wire: Wire) -> bytes:
        now = datetime.now(UTC)
        signature = f"{self._random.getrandbits(256):064x}"
        words = f"{self._random.getrandbits(128):032x}"
        invocation = "-".join((words[:8], words[8:12], words[12:16], words[16:20], words[20:]))
        lines = (
            "POST / HTTP/1.1",
            f"Host: {self._authority}",
            "Accept-Encoding: identity",
            *[line.replace("{action}", action) for line in wire.lines],
            f"User-Agent: {_AGENT}",
            f"X-Amz-Date: {now:%Y%m%dT%H%M%SZ}",
            f"Authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{now:%Y%m%d}/us-east-1/"
            f"{wire.service}/aws4_request, SignedHeaders={wire.signed}, Signature={signature}",
            f"amz-sdk-invocation-id: {invocation}",
            "amz-sdk-request: attempt=1; max=3",
            "Content-Length: ",
        )
        return "\r\n".join(lines).encode()


def _form(action: str, parameters: Mapping[str, str], wire: Wire) -> str:
    return urlencode({"Action": action, "Version": _VERSIONS[wire.service], **parameters})
