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

VARIANTS = 64
ACCESS_KEY = "AKIABENCH00000000000"
_SIGNED = "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode"
_AGENT = (
    "Boto3/1.44.5 md/Botocore#1.44.5 ua/2.1 os/linux#6.18.44 md/arch#x86_64 lang/python#3.11.7 "
    "md/pyimpl#CPython m/N,Z,E,b,e cfg/retry-mode#standard Botocore/1.44.5"
)
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789    "

_JSON = "application/x-amz-json-1.0"


def message_body(size_bytes: int, seed: int = 1) -> str:
    """Return a text of exactly so many ASCII bytes that no JSON writer has to escape."""
    return "".join(random.Random(seed).choices(_ALPHABET, k=size_bytes))


class Renderer:
    """Renders requests for one server; hands out header variants in turn."""

    def __init__(self, host: str, port: int) -> None:
        self._authority = f"{host}:{port}"
        self._random = random.Random(7)
        self._heads: dict[str, Iterator[bytes]] = {}

    def request(self, action: str, members: Mapping[str, object]) -> bytes:
        """Return the whole request of one SQS action over JSON 1.0."""
        return self.wrap(action, json.dumps(members).encode())

    def wrap(self, action: str, body: bytes) -> bytes:
        """Return a request around a body that is JSON already."""
        return b"%b%d\r\n\r\n%b" % (self.head(action), len(body), body)

    def head(self, action: str) -> bytes:
        """Return one of VARIANTS heads of this action, up to the number of Content-Length."""
        heads = self._heads.get(action)
        if heads is None:
            heads = self._heads[action] = cycle([self._head(action) for _ in range(VARIANTS)])
        return next(heads)

    def numbered(
        self, action: str, members: Mapping[str, object], *, fields: Sequence[str]
    ) -> Callable[..., bytes]:
        """Return a function of one number per field; each field stands for 12 digits.

        A field may occur in several values. The length stays the same, so that while load runs only
        the numbers are formatted.
        """
        text = json.dumps(members)
        pattern = re.compile("|".join(re.escape(name) for name in fields))
        order = [fields.index(name) for name in pattern.findall(text)]
        template = pattern.sub("%012d", text.replace("%", "%%")).encode()
        length = len(template % tuple(0 for _ in order))
        heads = cycle([b"%b%d\r\n\r\n" % (self.head(action), length) for _ in range(VARIANTS)])
        if order == list(range(len(fields))):
            return lambda *numbers: next(heads) + template % numbers
        return lambda *numbers: next(heads) + template % tuple(numbers[index] for index in order)

    def deletion(self, queue_url: str) -> Callable[[bytes], bytes]:
        """Return a function that renders DeleteMessage for a handle as it stood in an answer."""
        start = f'{{"QueueUrl": {json.dumps(queue_url)}, "ReceiptHandle": "'.encode()
        fixed = len(start) + 2

        def render(handle: bytes) -> bytes:
            head = self.head("DeleteMessage")
            return b'%b%d\r\n\r\n%b%b"}' % (head, fixed + len(handle), start, handle)

        return render

    def batch_deletion(self, queue_url: str, handles: Sequence[bytes]) -> bytes:
        """Return DeleteMessageBatch for up to ten receipt handles."""
        entries = b", ".join(
            b'{"Id": "%d", "ReceiptHandle": "%b"}' % (index, handle)
            for index, handle in enumerate(handles)
        )
        start = f'{{"QueueUrl": {json.dumps(queue_url)}, "Entries": ['.encode()
        return self.wrap("DeleteMessageBatch", start + entries + b"]}")

    def _head(self, action: str) -> bytes:
        now = datetime.now(UTC)
        signature = f"{self._random.getrandbits(256):064x}"
        words = f"{self._random.getrandbits(128):032x}"
        invocation = "-".join((words[:8], words[8:12], words[12:16], words[16:20], words[20:]))
        lines = (
            "POST / HTTP/1.1",
            f"Host: {self._authority}",
            "Accept-Encoding: identity",
            f"X-Amz-Target: AmazonSQS.{action}",
            f"Content-Type: {_JSON}",
            "x-amzn-query-mode: true",
            f"User-Agent: {_AGENT}",
            f"X-Amz-Date: {now:%Y%m%dT%H%M%SZ}",
            f"Authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{now:%Y%m%d}/us-east-1/sqs"
            f"/aws4_request, SignedHeaders={_SIGNED}, Signature={signature}",
            f"amz-sdk-invocation-id: {invocation}",
            "amz-sdk-request: attempt=1; max=3",
            "Content-Length: ",
        )
        return "\r\n".join(lines).encode()
