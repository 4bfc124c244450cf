"""``python -m tests.fuzz.differential --seed 7 --pairs 20000``: the same bytes in one write and in
pieces.

A request in one write may take the fast path, in pieces it never does. Both ways must end alike:
as many answers, with the same statuses and texts, and no error in the log. Each pair goes to two
accounts in the same state. The first difference ends the run and is printed, to be sent again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.faces.clients import Sqs, authorization
from tests.faces.connections import Answer, Closed, Connection, request_bytes
from tests.faces.servers import Server
from tests.faces.sns_client import Sns

ONE, OTHER = "100000000001", "100000000002"
_END = "GET /livez HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
_VARIES = re.compile(
    rb'"(?:MessageId|ReceiptHandle|SequenceNumber|MD5OfMessageBody|id)": ?"?[^",}]*"?'
    rb"|<(RequestId|MessageId|ReceiptHandle|MD5OfMessageBody)>[^<]*<|\"Messages\":\[.*\]|\"messages\":\[.*\]",
    re.DOTALL,
)
_FORM = "application/x-www-form-urlencoded; charset=utf-8"


class Outcome(NamedTuple):
    """Everything that came back, without what is different every time."""

    answers: tuple[tuple[int, str, bytes], ...]


@dataclass
class Case:
    """Bytes for an account that stands in them as ONE, and where to cut them."""

    data: bytes
    cuts: list[int]
    ends_sending: bool

    def __str__(self) -> str:
        how = "then ends its stream" if self.ends_sending else "then waits"
        return f"data = {self.data!r}\ncut at {self.cuts}, {how}"


class Requests:
    """Makes cases out of a seed."""

    def __init__(self, seed: int, server: Server) -> None:
        self.random = random.Random(seed)
        self.host = server.url.partition("://")[2]
        self.queue = f"{server.url}/{ONE}/fuzzed"
        self.topic = f"arn:aws:sns:us-east-1:{ONE}:fuzzed"

    def case(self) -> Case:
        """One to three requests behind one another, most of them odd in some way."""
        if self.random.random() < 0.15:
            data = self._mutated(self._receive(), _HARMLESS) + _END.format(host=self.host).encode()
            return Case(data, self._cuts(data), False)
        count = self.random.choice((1, 1, 1, 2, 3))
        data = b"".join(self._request() for _ in range(count))
        return Case(data, self._cuts(data), True)

    def _cuts(self, data: bytes) -> list[int]:
        return sorted(self.random.sample(range(1, len(data)), self.random.choice((1, 1, 2, 4))))

    def _request(self) -> bytes:
        make: Callable[[], bytes] = self.random.choice(
            (self._send, self._send, self._attributes, self._publish, self._native, self._query)
        )
        return self._mutated(make(), _HARMLESS + _HARMFUL)

    def _mutated(self, data: bytes, changes: tuple[Change, ...]) -> bytes:
        for _ in range(self.random.choice((0, 1, 1, 2))):
            data = self.random.choice(changes)(self.random, data)
        return data

    def _post(self, body: bytes, service: str = "sqs", **headers: str) -> bytes:
        own = {"Host": self.host, "Authorization": authorization(ONE, service=service)}
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return request_bytes("POST", "/", own | more, body)

    def _json(self, action: str, **members: object) -> bytes:
        body = json.dumps({"QueueUrl": self.queue, **members}).encode()
        target = f"AmazonSQS.{action}"
        return self._post(body, X_Amz_Target=target, Content_Type="application/x-amz-json-1.0")

    def _send(self) -> bytes:
        return self._json("SendMessage", MessageBody="b" * self.random.randint(1, 300))

    def _attributes(self) -> bytes:
        return self._json("GetQueueAttributes", AttributeNames=["QueueArn"])

    def _receive(self) -> bytes:
        return self._json("ReceiveMessage", VisibilityTimeout=0)

    def _publish(self) -> bytes:
        form = f"Action=Publish&Version=2010-03-31&TopicArn={self.topic}&Message=m"
        return self._post(form.encode(), "sns", Content_Type=_FORM)

    def _query(self) -> bytes:
        form = f"Action=SendMessage&Version=2012-11-05&QueueUrl={self.queue}&MessageBody=b"
        return self._post(form.encode(), Content_Type=_FORM)

    def _native(self) -> bytes:
        headers = {"Host": self.host, "Authorization": authorization(ONE)}
        path = "/v1/queues/fuzzed/messages"
        return request_bytes("POST", path, headers, b'{"message": {"a": 1}}')


Change = Callable[[random.Random, bytes], bytes]

_LINES = (
    b"Connection: keep-alive",
    b"Connection: Upgrade\r\nUpgrade: h2c",
    b"Upgrade: websocket",
    b"TE: trailers",
    b"Expect: 100-continue",
    b"X-A: \t v \t ",
    b"X-\xe9: v",
    b"X-A: \xc3\xa9",
    b"Accept-Encoding: gzip",
    b"Content-Encoding: identity",
    b"X-Forwarded-Proto: https",
    b"x-amzn-trace-id: Root=1-2-3",
    b"!#$%&'*+-.^_`|~: v",
)
_ODD_LINES = (
    b"Host: localhost",
    b"X-A : v",
    b"X-A",
    b": v",
    b" folded",
    b"X-A: a\x00b",
    b"X-A: a\rb",
    b"X-A: a\nX-B: b",
    b"Content-Length: 3",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Authorization: any",
    b"X-Amz-Target: AmazonSQS.ListQueues",
    b"Content-Type: text/plain",
)
_FIRST = (
    (b" HTTP/1.1", b" HTTP/1.0"),
    (b" HTTP/1.1", b" HTTP/2.0"),
    (b" HTTP/1.1", b"  HTTP/1.1"),
    (b"POST ", b"PUT "),
    (b"POST ", b"post "),
    (b"POST /", b"\r\nPOST /"),
    (b"POST /", b"POST /?a=b"),
    (b"POST /", b"POST //"),
    (b"POST /", b"POST http://elsewhere/"),
)
_VALUES = (
    (b"/sqs/aws4", b"/sns/aws4"),
    (b"/sqs/aws4", b"/scheduler/aws4"),
    (b"/sqs/aws4", b"/other/aws4"),
    (b"/sns/aws4", b"/sqs/aws4"),
    (b"/us-east-1/", b"/eu-west-1/"),
    (b"000\r\n", b"000 \r\n"),
    (b"000\r\n", b"00\r\n"),
    (b"000\r\n", b"00x\r\n"),
    (b"SignedHeaders=", b"Signed="),
    (b"Authorization: AWS4-HMAC-SHA256", b"Authorization: any"),
    (b"Authorization:", b"authorization:"),
    (b"Authorization:", b"X-Authorization:"),
    (b"Authorization: ", b"Authorization:\t  "),
    (b"Host: ", b"X-Host: "),
    (b"x-amz-json", b"X-AMZ-JSON"),
    (b"Content-Type", b"X-Content-Type"),
    (b"AmazonSQS.", b"AmazonSQS"),
    (b"AmazonSQS.", b"AmazonSNS."),
    (b"Content-Length: ", b"Content-Length: 0"),
    (b"Content-Length: ", b"Content-Length:\t"),
    (b"Content-Length: ", b"Content-Length: +"),
    (b'{"QueueUrl', b'{"Queue'),
    (b"TopicArn=", b"TopicArn=%61"),
    (b"Action=", b"action="),
)


def _line(generator: random.Random, data: bytes, lines: tuple[bytes, ...]) -> bytes:
    """One more header, anywhere in the head."""
    head, _, body = data.partition(b"\r\n\r\n")
    parts = head.split(b"\r\n")
    parts.insert(generator.randint(1, len(parts)), generator.choice(lines))
    return b"\r\n".join(parts) + b"\r\n\r\n" + body


def _usual_line(generator: random.Random, data: bytes) -> bytes:
    return _line(generator, data, _LINES)


def _odd_line(generator: random.Random, data: bytes) -> bytes:
    return _line(generator, data, _ODD_LINES)


def _value(generator: random.Random, data: bytes) -> bytes:
    old, new = generator.choice(_VALUES)
    return data.replace(old, new, 1)


def _first_line(generator: random.Random, data: bytes) -> bytes:
    old, new = generator.choice(_FIRST)
    return data.replace(old, new, 1)


def _byte(generator: random.Random, data: bytes) -> bytes:
    """One byte of the head is another one, is missing or is new.

    Not in a length or a host: an answer that needs no body comes before the end of one or behind
    it, as it happens.
    """
    at = generator.randrange(data.index(b"\r\n\r\n"))
    line_at = data.rfind(b"\n", 0, at) + 1
    if data[line_at:].startswith((b"Content-Length", b"Host")):
        return data
    new = generator.choice((b"", bytes([generator.randrange(256)]), data[at : at + 1] + b"\n"))
    return data[:at] + new + data[at + 1 :]


def _chunked(generator: random.Random, data: bytes) -> bytes:
    """The same body in chunks, with trailers or oddities now and then."""
    head, _, body = data.partition(b"\r\n\r\n")
    if b"Content-Length: " not in head or b"chunked" in head:
        return data
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    half = generator.randint(1, max(1, len(body) - 1))
    extension = generator.choice((b"", b"", b";a=b", b" ;a", b"\t", b";\x00"))
    chunks = b"".join(
        b"%x%b\r\n%b\r\n" % (len(part), extension, part)
        for part in (body[:half], body[half:])
        if part
    )
    trailers = generator.choice(
        (b"", b"", b"X-T: v\r\n", b"X-Amz-Target: AmazonSQS.PurgeQueue\r\n", b"bad\x00\r\n")
    )
    end = generator.choice((b"0\r\n", b"0\r\n", b"000\r\n", b"0;x\r\n", b"-0\r\n"))
    return head + b"\r\n\r\n" + chunks + end + trailers + b"\r\n"


def _length(generator: random.Random, data: bytes) -> bytes:
    """A length that is not that of the body."""

    def other(found: re.Match[bytes]) -> bytes:
        return b"Content-Length: %d" % max(0, int(found[1]) + generator.choice((-3, -1, 1, 500)))

    return re.sub(rb"Content-Length: (\d+)", other, data, count=1)


_HARMLESS: tuple[Change, ...] = (_usual_line, _value, _chunked)
_HARMFUL: tuple[Change, ...] = (_odd_line, _first_line, _byte, _length)


class Quiet(Server):
    """A gateway that has nothing to complain of."""

    def __init__(self, path: Path) -> None:
        with path.open("w") as self.log:
            super().__init__(QUEUEGATE_LOG_LEVEL="error")
        self._log_path = path

    def __enter__(self) -> Quiet:
        return self

    def complaints(self) -> str:
        """Return the text of its log."""
        return self._log_path.read_text() if self._log_path.stat().st_size else ""


class Differ:
    """Sends both halves of a pair."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self._between = Connection(server.url)
        self._between_bytes = request_bytes("GET", "/livez", {"Host": self._between.host})

    def outcomes(self, case: Case) -> tuple[Outcome, Outcome]:
        """In one write, and in pieces."""
        other = case.data.replace(ONE.encode(), OTHER.encode())
        bounds = [0, *case.cuts, len(other)]
        pieces = [other[a:b] for a, b in itertools.pairwise(bounds)]
        return self._outcome([case.data], case), self._outcome(pieces, case)

    def _outcome(self, pieces: list[bytes], case: Case) -> Outcome:
        answers = []
        with Connection(self._url) as connection:
            try:
                for number, piece in enumerate(pieces):
                    if number:
                        # It was read alone when this has been answered.
                        self._between.send(self._between_bytes)
                        self._between.answer()
                    connection.send(piece)
                if case.ends_sending:
                    connection.end_sending()
            except ConnectionError:
                pass
            try:
                while True:
                    answers.append(_plain(connection.answer()))
            except (Closed, ConnectionError):
                return Outcome(tuple(answers))


def _plain(answer: Answer) -> tuple[int, str, bytes]:
    body = _VARIES.sub(b"~", answer.body).replace(OTHER.encode(), ONE.encode())
    return answer.status, answer.headers.get("content-type", ""), body


def run(server: Quiet, seed: int, pairs: int) -> int:
    """Return how many pairs were alike before the first difference, which is printed."""
    for account in (ONE, OTHER):
        with Sqs("json", server.url, account) as sqs, Sns("query", server.url, account) as sns:
            for region in ("us-east-1", "eu-west-1"):
                with sqs.other(region=region) as there:
                    there.create("fuzzed")
            sns.create("fuzzed")
    requests, differ = Requests(seed, server), Differ(server)
    for number in range(pairs):
        case = requests.case()
        one, pieces = differ.outcomes(case)
        complaints = server.complaints()
        if one != pieces or complaints:
            print(f"seed {seed}, pair {number}: different\n{case}\nin one write: {one.answers}")
            print(f"in pieces:    {pieces.answers}\n{complaints}")
            return number
        if (number + 1) % 1000 == 0:
            print(f"{number + 1} pairs alike", flush=True)
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.differential", description=__doc__)
    parser.add_argument("--seed", type=int, help="the run to repeat; without it, a random one")
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs of a run")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, Quiet(Path(folder) / "log") as server:
        alike = run(server, seed, arguments.pairs)
    return 0 if alike == arguments.pairs else 1


if __name__ == "__main__":
    sys.exit(main())
