"""Options of the connectors: declared once, read from what Spark passes, listed in the guide."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_connectors.endpoints import Connection, StaticCredentials
from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.transport import Transport, open_transport

# Spark passes its own options to a source or sink along with the user's.
_OF_SPARK = {"path", "checkpointlocation", "queryname", "mergeschema", "header"}
# Set by CREATE TABLE alone.
_OF_TABLES = "provider"
NO_TABLES = (
    "a queue or topic cannot be kept by CREATE TABLE ... USING: Spark 4.2 and 4.3 give a source "
    "in Python none of a table's options when that is read or written. CREATE TEMPORARY VIEW name "
    "USING sqs OPTIONS (queueUrl '...') does the same for a session, and takes INSERT, too"
)
SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_BYTES = {"": 1} | {
    name + end: 1 << power for name, power in (("k", 10), ("m", 20), ("g", 30)) for end in ("", "b")
}


class BadOption(ConnectorError):
    """An option that cannot be parsed, is unknown, or contradicts another."""


class OptionKind(NamedTuple):
    """The parser of an option's text. ``read`` raises ValueError with the expected form."""

    name: str
    read: Callable[[str], Any]


class Option(NamedTuple):
    """One option. ``default``: its value when absent; ``shown``: the default in the guide;
    ``field``: its name in Python."""

    name: str
    kind: OptionKind
    default: Any
    meaning: str
    aliases: tuple[str, ...] = ()
    shown: str = ""
    field: str = ""


def _text(given: str) -> str:
    if not given:
        raise ValueError("a text")
    return given


def _names(given: str) -> tuple[str, ...]:
    """Parse names with commas between, or a JSON list of texts."""
    try:
        found = json.loads(given) if given.lstrip().startswith("[") else given.split(",")
        names = tuple(one.strip() for one in found)
    except (ValueError, AttributeError):
        names = ()
    if not names or not all(names):
        raise ValueError("names with commas between, or a JSON list of texts")
    return names


def number_of(text: str, parse: Callable[[str], float], units: Mapping[str, float]) -> float:
    """Parse a number with one of these units; NaN for any other text."""
    number = text.strip().lower()
    unit = number.lstrip("0123456789.") if units else ""
    try:
        return parse(number.removesuffix(unit)) * (units[unit] if units else 1)
    except (ValueError, KeyError):
        return float("nan")


def _bounded(kind: str, least: str, most: str) -> OptionKind:
    """Return the kind of a number from ``least`` to ``most``, both included."""
    kinds: dict[str, tuple[str, Callable[[str], float], Mapping[str, float], str]] = {
        "int": ("number", int, {}, "a whole number from {} to {}"),
        "seconds": ("seconds", float, {}, "seconds from {} to {}"),
        "time": ("time", float, SECONDS, "a time from {} to {} seconds, such as 30s, 15m or 1h"),
        "bytes": ("bytes", int, _BYTES, "bytes from {} to {}, such as 65536, 512k or 64m"),
    }
    name, parse, units, form = kinds[kind]
    is_exact = parse is int
    low, high = (number_of(one, int if is_exact else float, _BYTES) for one in (least, most))
    expected = form.format(*(f"{one}" if is_exact else f"{one:g}" for one in (low, high)))

    def read(given: str) -> float:
        found = number_of(given, parse, units)
        if not low <= found <= high:
            raise ValueError(expected)
        return found

    return OptionKind(name, read)


def _choice(words: Sequence[str]) -> OptionKind:
    def read(given: str) -> str:
        if given.lower() not in words:
            raise ValueError(" or ".join(words))
        return given.lower()

    return OptionKind("|".join(words), read)


_TRUTH = _choice(("true", "false"))
TRUTH = _TRUTH._replace(read=lambda given: _TRUTH.read(given) == "true")
_KINDS = {"text": OptionKind("text", _text), "names": OptionKind("names", _names), "bool": TRUTH}


def declared(table: str, **kinds: OptionKind) -> tuple[Option, ...]:
    """Return the options of a table: ``name aliases =field | kind | default | shown default``, and
    below it, indented, the meaning. A dash is no default. ``kinds``: kinds of this table alone."""
    found: list[Option] = []
    for line in table.strip().splitlines():
        if line.startswith(" "):
            meaning = f"{found[-1].meaning} {line.strip()}".lstrip()
            found[-1] = found[-1]._replace(meaning=meaning)
            continue
        named, kind_text, text, shown = (*line.split(" | "), "", "")[:4]
        named, _, field = named.partition(" =")
        name, *aliases = named.split()
        field = field or re.sub("[A-Z]", lambda one: f"_{one[0].lower()}", name)
        first, *bounds = kind_text.split()
        if bounds:
            kind = _bounded(first, *bounds)
        elif first in _KINDS or first in kinds:
            kind = (_KINDS | kinds)[first]
        else:
            kind = _choice(first.split("|"))
        default = None if text in ("", "-") else kind.read(text)
        if default is None and first == "names":
            default = ()
        code = "" if text in ("", "-") else f"`{text}`"
        found.append(Option(name, kind, default, "", tuple(aliases), shown or code, field))
    return tuple(found)


def read_options(declared: Sequence[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return values by the options' own names, with defaults; names are matched in any case. Raises
    BadOption for an option that is unknown (with the nearest name), named twice, or not
    understood."""
    if any(name.lower() == _OF_TABLES for name in given):
        raise BadOption(NO_TABLES)
    for name in unknown_names(declared, given):
        raise BadOption(f"unknown option '{name}'{_nearest(name, declared)}")
    by_name = _by_name(declared)
    found: dict[str, Any] = {}
    for name, text in given.items():
        option = by_name.get(name.lower())
        if option is None:
            continue
        if option.name in found:
            raise BadOption(f"option '{option.name}' is given twice: '{name}' is the same one")
        try:
            found[option.name] = option.kind.read(str(text).strip())
        except ValueError as unreadable:
            shown = f"'{text}'" if "secret" not in option.name.lower() else "its value"
            raise BadOption(f"option '{option.name}': expected {unreadable}, got {shown}") from None
    return {option.name: found.get(option.name, option.default) for option in declared}


def fields_of(
    declared: Sequence[Option], read: Mapping[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """Return the values of options by their fields, of those with these names."""
    return {one.field: read[one.name] for one in declared if one.field in names}


def check_either(
    stream: Callable[[Mapping[str, str]], object],
    batch: Callable[[Mapping[str, str]], object],
    known: Sequence[Option],
    given: Mapping[str, str],
) -> None:
    """Check that the options fit a stream or a batch, before Spark says which. Raises BadOption.
    No service is called: many plans are never run. ``known``: the options of a stream."""
    try:
        stream(given)
    except BadOption as of_stream:
        try:
            batch(given)
        except BadOption as of_batch:
            # The intended one is the one that knows the names.
            raise (of_batch if unknown_names(known, given) else of_stream) from None


def unknown_names(declared: Sequence[Option], given: Iterable[str]) -> list[str]:
    """Return the names that are neither options nor Spark's own."""
    known = _by_name(declared).keys() | _OF_SPARK
    return [one for one in given if one.lower() not in known and not one.startswith("__")]


def _by_name(declared: Sequence[Option]) -> dict[str, Option]:
    return {name.lower(): one for one in declared for name in (one.name, *one.aliases)}


def _nearest(name: str, declared: Sequence[Option]) -> str:
    import difflib

    known = {one.lower(): one for option in declared for one in (option.name, *option.aliases)}
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f": did you mean '{known[close[0]]}'?" if close else ""


def table(declared: Sequence[Option]) -> Iterator[str]:
    """Yield the options as the lines of a Markdown table."""
    yield "| option | default | meaning |"
    yield "| --- | --- | --- |"
    for option in declared:
        names = " ".join([f"`{option.name}`", *(f"(`{one}`)" for one in option.aliases)])
        kind = "" if option.kind.name in ("text", "number") else f"`{option.kind.name}`. "
        meaning = (kind + option.meaning).replace("|", "\\|")
        yield f"| {names} | {option.shown} | {meaning} |"


CONNECTING = declared("""
endpointUrl endpoint | text | - | `AWS_ENDPOINT_URL_SQS`, `AWS_ENDPOINT_URL_SNS`, then AWS
  URL of the service, such as `http://localhost:9324`. `AWS_ENDPOINT_URL` is for both services.
region | text | - | as botocore finds it
  Region to sign for.
profile | text
  Profile of the AWS configuration files.
roleArn | text
  Role to assume. The other credentials call STS.
roleSessionName | text | - | `queuegate-spark`
  Session name of the assumed role.
transport | auto|lean|boto3 | auto
  Accepted for older jobs. There is one transport, so every value means the same.
maxRetries | int 0 100 | 8
  Retries of a call, or of an entry of a batch, after transient failures.
allowStaticCredentials | bool | false
  Allow keys among the options. Spark shows options in plans and logs.
accessKeyId awsAccessKeyId | text
  Access key. Needs `allowStaticCredentials`.
secretAccessKey awsSecretAccessKey awsSecretKey | text
  Secret of the access key. Needs `allowStaticCredentials`.
sessionToken awsSessionToken | text
  Session token of temporary keys. Needs `allowStaticCredentials`.
""")
QUEUE = declared("""
queueUrl sqsUrl | text | - | required
  URL of the queue. Give this or `queueName`.
queueName | text
  Name of the queue.
queueOwnerAWSAccountId | text
  Account that owns the queue of `queueName`.
""")


def connection_of(options: dict[str, Any]) -> Connection:
    """Return the connection. Raises BadOption for keys that are not allowed, or incomplete."""
    keys = [options[name] for name in ("accessKeyId", "secretAccessKey", "sessionToken")]
    static = None
    if any(keys):
        if not options["allowStaticCredentials"]:
            raise BadOption(
                "keys among the options end up in Spark's plans and event logs: leave them to the "
                "environment, a profile or a role, or set allowStaticCredentials=true"
            )
        if not (keys[0] and keys[1]):
            raise BadOption("accessKeyId and secretAccessKey belong together")
        static = StaticCredentials(*keys)
    fields = fields_of(CONNECTING, options, Connection._fields)
    return Connection(**fields, static=static)


_NO_RIGHT = frozenset({"AccessDenied", "AuthorizationError"})


class QueuePlace:
    """The queue that options name. Its URL is looked up once, when it is first needed."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._url: str | None = options["queueUrl"]
        self._name: str | None = options["queueName"]
        self._owner: str | None = options["queueOwnerAWSAccountId"]
        if (self._url is None) == (self._name is None):
            raise BadOption("one of queueUrl and queueName is required, and not both")
        if self._url is not None and "://" not in self._url:
            raise BadOption(f"option 'queueUrl': '{self._url}' is no URL; a name goes in queueName")

    @property
    def name(self) -> str:
        """The queue's name, as it ends the URL."""
        return self._name or (self._url or "").rstrip("/").rpartition("/")[2]

    @property
    def is_fifo(self) -> bool:
        """True for a FIFO queue, by its name."""
        return self.name.endswith(".fifo")

    def check(self, connection: Connection) -> None:
        """Raise Refused for a queue that does not exist, NotNow for an endpoint
        that does not answer, ConnectorError for a bad endpoint or missing credentials."""
        transport = open_transport(connection)
        try:
            transport.figures(self.url(transport))
        except Refused as no:
            # A sender needs no permission to read attributes.
            if no.code not in _NO_RIGHT:
                what = self._url or f"queue '{self.name}'"
                raise Refused(no.code, f"{no.message} (asking for {what})") from None
        finally:
            transport.close()

    def url(self, transport: Transport) -> str:
        """Return the queue's URL. Raises as Transport.queue_url does."""
        if self._url is None:
            assert self._name is not None
            self._url = transport.queue_url(self._name, self._owner)
        return self._url
