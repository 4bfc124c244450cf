"""Seed files: a seed from tables of named resources, and the tables of an account as TOML.

`elasticmq.conf` and CloudFormation templates are translated into the same tables first.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queuegate.gateway.seeding.cloudformation import translate_template
from queuegate.gateway.seeding.elasticmq_files import translate_elasticmq
from queuegate.gateway.seeding.hocon import Place
from queuegate.gateway.seeding.located_files import Mistakes, read_file
from queuegate.gateway.seeding.resource_kinds import KINDS, SeedResource, Values
from queuegate.gateway.seeding.seeds import Seed, SeedFault
from queuegate.protocol import arns, shapes, urls
from queuegate.protocol.scheduler_shapes import SCHEDULER

_ROLE = "arn:aws:iam::{}:role/queuegate-seed"
"""Role of schedules that name none. Queuegate has no roles: any name is valid."""
_SECTIONS = "queues", "topics", "subscriptions", "schedules", "channels", "logs", "keys"
_REDRIVE = "RedrivePolicy"
_DEAD_LETTERS = "dead_letter_queue"
_OWN_FIELDS = {
    "queue": ("tags", "messages", _DEAD_LETTERS, "max_receive_count"),
    "topic": ("tags", "subscriptions"),
    "subscription": ("topic", "protocol", "endpoint", _DEAD_LETTERS),
    "schedule": ("group_name",),
    "key": ("secret_file",),
}
_MESSAGE = {
    "body": "MessageBody",
    "delay_seconds": "DelaySeconds",
    "attributes": "MessageAttributes",
    "group_id": "MessageGroupId",
    "deduplication_id": "MessageDeduplicationId",
}
_SCHEDULE = SCHEDULER.actions["CreateSchedule"].input
_ACCOUNT = re.compile(r"[0-9]{12}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
Where = tuple[str, str]
"""An account and a region."""


def snake(name: str) -> str:
    """Return the field for a name of AWS: `visibility_timeout` for VisibilityTimeout."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


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
        self.file = read_file(path, environ)
        self.seed = Seed()
        self.secret_files: dict[int, Path] = {}
        self._identities: set[tuple[str, ...]] = set()
        self._places: list[dict[str, Place]] = []
        """For each resource, the places of its fields under the names of the API."""
        data = self.file.data
        if self.file.is_hocon:
            data = translate_elasticmq(self.file)
        elif "Resources" in data or "AWSTemplateFormatVersion" in data:
            data = translate_template(self.file, home)
        home = self._where((), data, home)
        self._account((), data, home, (*_SECTIONS, "account", "region", "accounts"))
        for name, account in self._tables(("accounts",), data.get("accounts", {})):
            account_id, _, region = name.partition("/")
            named = {"account": account_id, "region": region or account.get("region", home[1])}
            where = self._where(("accounts", name), named, home)
            self._account(("accounts", name), account, where, (*_SECTIONS, "region"))

    def blame(self, faults: Iterable[SeedFault]) -> None:
        """Note what a gateway refused, and raise all mistakes, if there are any."""
        for fault in faults:
            places, resource = self._places[fault.number], self.seed.resources[fault.number]
            place, text = places[""], fault.text.lower()
            name, _, number = fault.field.partition(".")
            if number:
                place = (*place, name, int(number))
            elif name or (name := next((one for one in places if one and one in text), "")):
                place = places.get(name, place)
            label = "" if name else f"{resource.kind} {urls.without_password(resource.name)}: "
            self.file.refuse(place, label + fault.text)
        if self.file.mistakes:
            raise Mistakes(self.file.mistakes)

    def _where(self, place: Place, data: Mapping[str, Any], default: Where) -> Where:
        account, region = data.get("account", default[0]), data.get("region", default[1])
        if not (isinstance(account, str) and _ACCOUNT.fullmatch(account)):
            text = f"{account!r} is not an account: allowed are 12 digits"
            self.file.refuse((*place, "account"), text)
            account = default[0]
        if not (isinstance(region, str) and _REGION.fullmatch(region)):
            text = f"{region!r} is not a region: allowed are names such as us-east-1"
            self.file.refuse((*place, "region"), text)
            region = default[1]
        return account, region

    def _is(self, place: Place, value: Any, kind: type, what: str) -> bool:
        """Refuse a value of another type."""
        if not isinstance(value, kind):
            self.file.refuse(place, f"has to be {what}")
        return isinstance(value, kind)

    def _tables(self, place: Place, given: Any) -> Iterable[tuple[str, dict[str, Any]]]:
        """Yield the named tables of a section."""
        if self._is(place, given, dict, "a table of names"):
            for name, table in given.items():
                if self._is((*place, name), table or {}, dict, "a table"):
                    yield name, table or {}

    def _known(self, place: Place, given: Mapping[str, Any], allowed: Mapping[str, str]) -> Values:
        """Return known members under the names of the API. Refuse others."""
        names = {**allowed, **{name: name for name in allowed.values()}}
        for name in given.keys() - names.keys():
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            text = f"is unknown: {hint}allowed are {', '.join(sorted(allowed))}"
            self.file.refuse((*place, name), text)
        return {names[name]: value for name, value in given.items() if name in names}

    def _account(
        self, place: Place, data: Mapping[str, Any], where: Where, allowed: Iterable[str]
    ) -> None:
        self._known(place, data, {name: name for name in allowed})
        if place or data.keys() - {"accounts"}:
            self.seed.places.append(where)
        for section in _SECTIONS:
            inner = (*place, section)
            if section == "subscriptions":
                self._subscriptions(inner, data.get(section, []), where, "")
                continue
            for name, table in self._tables(inner, data.get(section, {})):
                self._resource(section.removesuffix("s"), (*inner, name), where, name, table)

    def _resource(
        self, kind: Any, place: Place, where: Where, name: str, table: Mapping[str, Any]
    ) -> None:
        fields = {snake(field): field for field in KINDS[kind].fields}
        own = _OWN_FIELDS.get(kind, ())
        values = self._known(place, table, fields | {field: field for field in own})
        one = SeedResource(kind, *where, name)
        places = {"": place, **{fields.get(key, key): (*place, key) for key in table}}
        places.setdefault(_REDRIVE, (*place, _DEAD_LETTERS))
        given = {field: values.pop(field) for field in own if field in values}
        if kind in ("queue", "topic", "subscription"):
            values = {field: text_of(value) for field, value in values.items()}
        elif kind == "schedule":
            values = self._schedule(place, where, values)
        with suppress(ValueError, TypeError, KeyError):
            # As GET /v1/keys answers, which a repetition is compared with.
            expiry = datetime.fromisoformat(values["expires_at"]).astimezone(UTC)
            values["expires_at"] = expiry.isoformat().replace("+00:00", "Z")
        one.values = values
        self._take_own(one, places, given)
        if one.identity in self._identities:
            name = urls.without_password(one.name)
            self.file.refuse(place, f"the {kind} {name} is in the file twice")
        self._identities.add(one.identity)
        if kind == "key" and "secret_file" in given:
            self._secret_file(one, places["secret_file"], given["secret_file"])
        self.seed.resources.append(one)
        self._places.append(places)
        if kind == "topic":
            arn = arns.topic_arn(where[1], where[0], name)
            self._subscriptions(
                (*place, "subscriptions"), given.get("subscriptions", []), where, arn
            )

    def _take_own(
        self, one: SeedResource, places: Mapping[str, Place], given: Mapping[str, Any]
    ) -> None:
        """Take fields that are not attributes."""
        where = one.account_id, one.region
        tags = given.get("tags")
        if isinstance(tags, list) and all(isinstance(tag, dict) for tag in tags):
            # As templates have them.
            tags = {text_of(tag.get("Key")): tag.get("Value") for tag in tags}
        if tags is not None and self._is(places["tags"], tags, dict, "a table of texts"):
            one.values["tags"] = {key: text_of(value) for key, value in tags.items()}
        target = given.get(_DEAD_LETTERS)
        if target is None and "max_receive_count" in given:
            self.file.refuse(places["max_receive_count"], f"needs {_DEAD_LETTERS} beside it")
        elif target is not None and self._is(
            places[_DEAD_LETTERS], target, str, "the name or the ARN of a queue"
        ):
            policy: Values = {"deadLetterTargetArn": _queue_arn(target, where)}
            if one.kind == "queue":
                policy["maxReceiveCount"] = given.get("max_receive_count", 10)
            one.values[_REDRIVE] = json.dumps(policy)
        if one.kind == "schedule":
            one.parent = text_of(given.get("group_name", "default"))
        elif one.kind == "subscription":
            protocol, endpoint = (text_of(given.get(n, "")) for n in ("protocol", "endpoint"))
            protocol = protocol or "sqs"
            one.parent = f"{given['topic']} {protocol}"
            one.name = _queue_arn(endpoint, where) if protocol == "sqs" and endpoint else endpoint
        elif one.kind == "queue":
            self._messages(one, (*places[""], "messages"), given.get("messages", []))

    def _subscriptions(self, place: Place, given: Any, where: Where, topic: str) -> None:
        """Take subscriptions of a topic, or with ``topic`` empty of the topics that they name."""
        if not self._is(place, given, list, "a list of tables"):
            return
        for number, table in enumerate(given):
            inner = (*place, number)
            if not self._is(inner, table, dict, "a table"):
                continue
            named = topic or text_of(table.get("topic", table.get("TopicArn", "")))
            if not named.startswith("arn:"):
                named = arns.topic_arn(where[1], where[0], named)
            self._resource("subscription", inner, where, "", {**table, "topic": named})

    def _messages(self, one: SeedResource, place: Place, given: Any) -> None:
        if not self._is(place, given, list, "a list of texts or tables"):
            return
        for number, message in enumerate(given):
            inner = (*place, number)
            message = {"body": message} if isinstance(message, str) else message
            if not self._is(inner, message, dict, "a text or a table with body"):
                continue
            members = self._known(inner, message, _MESSAGE)
            if not isinstance(members.get("MessageBody", ""), str):
                members["MessageBody"] = text_of(members["MessageBody"])
            attributes = members.get("MessageAttributes")
            if isinstance(attributes, dict):
                members["MessageAttributes"] = {
                    key: _attribute(value) for key, value in attributes.items()
                }
            one.messages.append(members)

    def _schedule(self, place: Place, where: Where, values: Values) -> Values:
        """Complete a schedule by defaults, and name its queues and topics by ARN."""
        members: Values = {"FlexibleTimeWindow": {"Mode": "OFF"}}
        for field, value in values.items():
            key = snake(field) if (*place, snake(field)) in self.file.lines else field
            members[field] = self._renamed((*place, key), value, _SCHEDULE.members[field])
        target = members.get("Target")
        if isinstance(target, dict):
            target.setdefault("RoleArn", _ROLE.format(where[0]))
            for holder in (target, target.get("DeadLetterConfig")):
                if isinstance(holder, dict) and isinstance(holder.get("Arn"), str):
                    holder["Arn"] = _queue_arn(holder["Arn"], where)
        for name in ("StartDate", "EndDate"):
            with suppress(ValueError, TypeError):
                # GetSchedule answers seconds, which a repetition is compared with.
                date = datetime.fromisoformat(members.get(name, ""))
                members[name] = date.replace(tzinfo=date.tzinfo or UTC).timestamp()
        return members

    def _renamed(self, place: Place, given: Any, shape: shapes.Shape) -> Any:
        """Return the members of a structure under the names of the API."""
        if isinstance(shape, shapes.Structure) and isinstance(given, dict):
            names = {snake(name): name for name in shape.members}
            return {
                name: self._renamed((*place, snake(name)), value, shape.members[name])
                for name, value in self._known(place, given, names).items()
            }
        is_text = isinstance(shape, shapes.Scalar) and shape.kind == "string"
        return text_of(given) if is_text and not isinstance(given, str) else given

    def _secret_file(self, one: SeedResource, place: Place, given: Any) -> None:
        """Note the file of a key's secret. If it is absent, the key is replaced."""
        path = self.file.path.parent / text_of(given)
        try:
            # The unfinished file has a longer name, and Linux allows 255 bytes.
            fits = len(path.name.encode()) <= 200 and path.parent.is_dir() and not path.is_dir()
            one.replaces = not path.exists()
        except (OSError, ValueError):
            fits = False
        if not fits:
            self.file.refuse(place, "has to be the name of a file in a directory that exists")
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
    ordered = sorted(resources, key=lambda one: one.kind == "subscription")
    for one in ordered:
        table = {snake(name): _parsed(value) for name, value in one.values.items()}
        policy = table.pop(snake(_REDRIVE), None)
        if isinstance(policy, dict):
            table[_DEAD_LETTERS] = policy["deadLetterTargetArn"]
            if one.kind == "queue":
                table[_DEAD_LETTERS] = table[_DEAD_LETTERS].rpartition(":")[2]
                table["max_receive_count"] = policy["maxReceiveCount"]
        head = f"[{one.kind}s.{_key(one.name)}]"
        match one.kind:
            case "subscription":
                topic, _, protocol = one.parent.partition(" ")
                head = "[[subscriptions]]"
                table = {"topic": topic, "protocol": protocol, "endpoint": one.name, **table}
            case "schedule":
                table = {"group_name": one.parent, **_snaked(one.values)}
            case "key":
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
