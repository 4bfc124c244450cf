"""Seed files: a seed from tables of named resources, and the tables of an account as TOML.

`elasticmq.conf` and CloudFormation templates are translated into the same tables first.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queuegate.gateway.seeding.cloudformation import translate_template
from queuegate.gateway.seeding.elasticmq_files import translate_elasticmq
from queuegate.gateway.seeding.located_files import (
    FileKey,
    Items,
    LocatedFile,
    Mistakes,
    Table,
)
from queuegate.gateway.seeding.resource_kinds import HIDDEN_PASSWORD, KINDS, SeedResource
from queuegate.gateway.seeding.seeds import Seed, SeedFault
from queuegate.protocol import arns, urls
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.shapes import Map, Scalar, Shape, Structure, parse_timestamp

_ROLE = "arn:aws:iam::{}:role/queuegate-seed"
"""Role of schedules that name none. Queuegate has no roles: any name is valid."""
_SECTIONS = "queues", "topics", "subscriptions", "schedules", "channels", "logs", "keys"
_REDRIVE = "RedrivePolicy"
_DEAD_LETTERS = "dead_letter_queue"
_OWN_FIELDS = {
    "queue": ("messages", _DEAD_LETTERS, "max_receive_count"),
    "topic": ("subscriptions",),
    "subscription": ("endpoint", _DEAD_LETTERS),
    "key": ("secret_file",),
}
_MESSAGE = {
    "body": "MessageBody",
    "delay_seconds": "DelaySeconds",
    "attributes": "MessageAttributes",
    "group_id": "MessageGroupId",
    "deduplication_id": "MessageDeduplicationId",
}
_WHERE = {
    "account": (re.compile(r"[0-9]{12}"), "12 digits"),
    "region": (re.compile(r"[a-z0-9-]{1,64}"), "names such as us-east-1"),
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
Where = tuple[str, str]
"""An account and a region."""


def snake(name: str) -> str:
    """Return the field for a name of AWS: `visibility_timeout` for VisibilityTimeout."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def field_of(name: str) -> str:
    """Return the field of a resource for a name of AWS."""
    return "topic" if name == "TopicArn" else snake(name)


def text_of(value: Any) -> str:
    """Return a value as the text that attributes are made of."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class SeedFile:
    """A seed with the places of its fields in a file."""

    def __init__(self, path: Path, home: Where, environ: Mapping[str, str]) -> None:
        """``home``: the account and region that a file need not name. Raises Mistakes if the file
        cannot be read; ``file.mistakes`` has the others."""
        self.file = LocatedFile(path, environ)
        if self.file.mistakes:
            raise Mistakes(self.file.mistakes)
        self.seed = Seed()
        self.secret_files: dict[int, Path] = {}
        self._identities: set[tuple[str, ...]] = set()
        self.keys: list[dict[str, FileKey]] = []
        """For each resource, its key under "", and those of its fields under the API's names."""
        data = self.file.data
        if path.suffix.lower() == ".conf":
            data = translate_elasticmq(self.file)
        elif "Resources" in data or "AWSTemplateFormatVersion" in data:
            data = translate_template(self.file, home)
        home = self._where(data, home)
        self._account(data, home, (*_SECTIONS, "account", "region", "accounts"))
        if data.keys() - {"accounts"}:
            self.seed.places.append(home)
        for key in [key for key in data if key == "accounts"]:
            for name, account in self._tables(key, data[key]):
                parts = zip(_WHERE, str(name).split("/", 1), strict=False)
                named = {name.renamed(noun): part for noun, part in parts}
                where = self._where(account, self._where(named, home))
                self._account(account, where, (*_SECTIONS, "region"))
                self.seed.places.append(where)

    def blame(self, faults: Iterable[SeedFault]) -> None:
        """Note what a gateway refused, and raise all mistakes, if there are any."""
        for fault in faults:
            keys, one = self.keys[fault.resource], self.seed.resources[fault.resource]
            text = fault.text
            name = fault.field or next(
                (name for name in keys if name and name.lower() in text.lower()), ""
            )
            label = "" if name else f"{one.kind} {urls.without_password(one.name)}: "
            self.file.refuse(keys.get(name, keys[""]), label + text)
        if self.file.mistakes:
            raise Mistakes(self.file.mistakes)

    def _where(self, table: Table, default: Where) -> Where:
        """Return the account and the region that a table names."""
        found = dict(zip(_WHERE, default, strict=True))
        for key, value in table.items():
            pattern, allowed = _WHERE.get(key, (None, ""))
            if pattern is not None and isinstance(value, str) and pattern.fullmatch(value):
                found[key] = value
            elif pattern is not None:
                self.file.refuse(key, f"{value!r} is not allowed: allowed are {allowed}")
        return found["account"], found["region"]

    def _tables(self, key: FileKey, given: Any) -> Iterator[tuple[FileKey, Table]]:
        """Yield the named tables of a section."""
        for name, table in (self.file.checked(key, given, dict, "a table of names") or {}).items():
            found = self.file.checked(name, table or {}, dict, "a table")
            if found is not None:
                yield name, found

    def _known(self, given: Table, allowed: Mapping[str, str]) -> Table:
        """Return known members under the names of the API. Refuse others."""
        names = {**allowed, **{name: name for name in allowed.values()}}
        for key in given.keys() - names.keys():
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            self.file.refuse(key, f"is unknown: {hint}allowed are {', '.join(sorted(allowed))}")
        return {key.renamed(names[key]): value for key, value in given.items() if key in names}

    def _account(self, data: Table, where: Where, allowed: Iterable[str]) -> None:
        for section, given in self._known(data, {name: name for name in allowed}).items():
            if section == "subscriptions":
                self._subscriptions(section, given, where, "")
            elif section in _SECTIONS:
                for name, table in self._tables(section, given):
                    self._resource(section.removesuffix("s"), name, where, table)

    def _resource(self, kind: Any, key: FileKey, where: Where, table: Table) -> None:
        fields = {field_of(name): name for name in KINDS[kind].fields}
        given = self._known(table, fields | {name: name for name in _OWN_FIELDS.get(kind, ())})
        keys = {"": key, **{str(name): name for name in given}}
        keys.setdefault(_REDRIVE, keys.get(_DEAD_LETTERS, key))
        shapes = KINDS[kind].fields
        values = {n: self._shaped(n, given[n], shapes[n]) for n in given if n in shapes}
        one = SeedResource(kind, *where, "" if kind == "subscription" else str(key), values)
        if kind == "schedule":
            self._complete(one)
        with suppress(ValueError, TypeError, KeyError):
            # As GET /v1/keys answers, which a repetition is compared with.
            expiry = datetime.fromisoformat(one.values["expires_at"]).astimezone(UTC)
            one.values["expires_at"] = expiry.isoformat().replace("+00:00", "Z")
        self._take_own(one, keys, given)
        if one.identity in self._identities:
            name = urls.without_password(one.name)
            self.file.refuse(key, f"the {kind} {name} is in the file twice")
        self._identities.add(one.identity)
        self.seed.resources.append(one)
        self.keys.append(keys)
        if "subscriptions" in given:
            arn = arns.topic_arn(where[1], where[0], one.name)
            self._subscriptions(keys["subscriptions"], given["subscriptions"], where, arn)

    def _take_own(self, one: SeedResource, keys: dict[str, FileKey], given: Table) -> None:
        """Take fields that are not attributes of the API."""
        where = one.account_id, one.region
        target, count = given.get(_DEAD_LETTERS), given.get("max_receive_count")
        if target is None and count is not None:
            self.file.refuse(keys["max_receive_count"], f"needs {_DEAD_LETTERS} beside it")
        elif target is not None:
            what = "the name or the ARN of a queue"
            named = self.file.checked(keys[_DEAD_LETTERS], target, str, what) or ""
            policy: dict[str, Any] = {"deadLetterTargetArn": _queue_arn(named, where)}
            if one.kind == "queue":
                policy["maxReceiveCount"] = 10 if count is None else count
            one.values[_REDRIVE] = json.dumps(policy)
        if one.kind == "subscription":
            protocol, endpoint = one.values["Protocol"], text_of(given.get("endpoint", ""))
            one.name = _queue_arn(endpoint, where) if protocol == "sqs" and endpoint else endpoint
        if "messages" in given:
            self._messages(one, keys, given["messages"])
        if "secret_file" in given:
            self._secret_file(one, keys["secret_file"], given["secret_file"])

    def _subscriptions(self, key: FileKey, given: Any, where: Where, topic: str) -> None:
        """Take subscriptions of a topic, or with ``topic`` empty of the topics that they name."""
        tables = self.file.checked(key, given, Items, "a list of tables") or Items([])
        for item, table in zip(tables.keys, tables, strict=True):
            if self.file.checked(item, table, dict, "a table") is None:
                continue
            named = topic or text_of(table.get("topic", table.get("TopicArn", "")))
            if not named.startswith("arn:"):
                named = arns.topic_arn(where[1], where[0], named)
            kept = {key: table[key] for key in table if key not in ("topic", "TopicArn")}
            kept[item.below("topic")] = named
            if kept.keys().isdisjoint(("protocol", "Protocol")):
                kept[item.below("protocol")] = "sqs"
            self._resource("subscription", item, where, kept)

    def _messages(self, one: SeedResource, keys: dict[str, FileKey], given: Any) -> None:
        what = "a list of texts or tables"
        messages = self.file.checked(keys["messages"], given, Items, what) or Items([])
        for item, message in zip(messages.keys, messages, strict=True):
            table = {item.below("body"): message} if isinstance(message, str) else message
            if self.file.checked(item, table, dict, "a text or a table with body") is None:
                continue
            members = self._known(table, _MESSAGE)
            if "MessageBody" in members:
                members["MessageBody"] = text_of(members["MessageBody"])
            attributes = members.get("MessageAttributes")
            if isinstance(attributes, dict):
                found = {key: _attribute(value) for key, value in attributes.items()}
                members["MessageAttributes"] = found
            keys[f"messages.{len(one.messages)}"] = item
            one.messages.append(members)

    def _complete(self, one: SeedResource) -> None:
        """Complete a schedule by defaults, and name its queues and topics by ARN."""
        defaults = {"FlexibleTimeWindow": {"Mode": "OFF"}, "GroupName": "default"}
        one.values = {**defaults, **one.values}
        target = one.values.get("Target")
        if isinstance(target, dict):
            target.setdefault("RoleArn", _ROLE.format(one.account_id))
            for holder in (target, target.get("DeadLetterConfig")):
                if isinstance(holder, dict) and isinstance(holder.get("Arn"), str):
                    holder["Arn"] = _queue_arn(holder["Arn"], (one.account_id, one.region))

    def _shaped(self, key: FileKey, given: Any, shape: Shape | None) -> Any:
        """Return a value as the API shows it, with the API's names of members."""
        match shape:
            case Map():
                table = self.file.checked(key, given, dict, "a table of texts") or {}
                return {name: self._shaped(name, one, shape.value) for name, one in table.items()}
            case Structure() if isinstance(given, dict):
                known = self._known(given, {snake(name): name for name in shape.members})
                members = shape.members
                return {n: self._shaped(n, one, members[n]) for n, one in known.items()}
            case Scalar(kind="timestamp"):
                with suppress(Malformed):
                    return parse_timestamp(text_of(given)).timestamp()
            case Scalar(kind="string"):
                return text_of(given)
        return given

    def _secret_file(self, one: SeedResource, key: FileKey, given: Any) -> None:
        """Note the file of a key's secret. If it is absent, the key is replaced."""
        path = self.file.path.parent / text_of(given)
        try:
            # The unfinished file has a longer name, and Linux allows 255 bytes.
            fits = len(path.name.encode()) <= 200 and path.parent.is_dir() and not path.is_dir()
            one.replaces = not path.exists()
        except (OSError, ValueError):
            fits = False
        if not fits:
            self.file.refuse(key, "has to be the name of a file in a directory that exists")
        self.secret_files[len(self.seed.resources)] = path


def _queue_arn(text: str, where: Where) -> str:
    """Return the ARN of a queue that is given by ARN, URL or name."""
    if text.startswith("arn:"):
        return text
    found = urls.queue_from_url(text) if "/" in text else None
    if found is None:
        return arns.queue_arn(where[1], where[0], text)
    return arns.queue_arn(found.region or where[1], found.account_id or where[0], found.name)


def _attribute(value: Any) -> Any:
    """Return a message attribute of a text, a number, or a table as the API has it."""
    if isinstance(value, dict):
        return value
    kind = "Number" if isinstance(value, int | float) and not isinstance(value, bool) else "String"
    return {"DataType": kind, "StringValue": text_of(value)}


def toml_of(where: Where, resources: Iterable[SeedResource]) -> str:
    """Return a seed file of the resources of an account in a region."""
    lines = [f'account = "{where[0]}"', f'region = "{where[1]}"']
    for one in sorted(resources, key=lambda one: one.kind == "subscription"):
        is_plain = one.kind != "schedule"
        table = {
            field_of(name): _parsed(value) if is_plain else _snaked(value)
            for name, value in one.values.items()
        }
        policy = table.pop(snake(_REDRIVE), None)
        if isinstance(policy, dict):
            target = policy["deadLetterTargetArn"]
            table[_DEAD_LETTERS] = target.rpartition(":")[2] if one.kind == "queue" else target
        if isinstance(policy, dict) and one.kind == "queue":
            table["max_receive_count"] = policy["maxReceiveCount"]
        head = f"[{one.kind}s.{_key(one.name)}]"
        if one.kind == "subscription":
            head, table["endpoint"] = "[[subscriptions]]", one.name
            if HIDDEN_PASSWORD in one.name:
                head += "  # Write the password in place of ****."
        elif one.kind == "key":
            table["secret_file"] = f"{one.name}.key"
        lines += ["", head, *_members(table)]
    return "\n".join(lines) + "\n"


def _parsed(value: Any) -> Any:
    """Return a number, a boolean or a policy as what it is; a policy with null stays a text."""
    try:
        found = json.loads(value)
    except (ValueError, TypeError):
        return value
    is_kept = value in ("true", "false") or (value.isdigit() and str(found) == value)
    is_policy = isinstance(found, dict) and "null" not in value
    return found if is_kept or is_policy else value


def _snaked(value: Any) -> Any:
    if isinstance(value, list):
        return [_snaked(one) for one in value]
    return {snake(k): _snaked(v) for k, v in value.items()} if isinstance(value, dict) else value


def _members(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_toml(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(_members(value))} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # Strings of JSON are strings of TOML, except that TOML escapes DEL, too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
