"""CloudFormation templates as tables of a seed, as far as they hold resources of SQS, SNS and
Scheduler.

`Ref`, `Fn::GetAtt`, `Fn::Sub` and `Fn::Join` are resolved, with the defaults of parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from queuegate.gateway.seeding.hocon import Place
from queuegate.gateway.seeding.located_files import LocatedFile
from queuegate.protocol import arns

_NAMES = {
    "AWS::SQS::Queue": ("queues", "QueueName"),
    "AWS::SNS::Topic": ("topics", "TopicName"),
    "AWS::Scheduler::Schedule": ("schedules", "Name"),
}
"""Section of a seed, and property with the name."""
_POLICIES = {"AWS::SQS::QueuePolicy": "Queues", "AWS::SNS::TopicPolicy": "Topics"}
_SUBSCRIPTION = "AWS::SNS::Subscription"
_VARIABLE = re.compile(r"\$\{(!?)([^}]*)\}")
_RENAMED = {"Tags": "tags", "Subscription": "subscriptions", "GroupName": "group_name"}
_RENAMED |= {"TopicArn": "topic", "Protocol": "protocol", "Endpoint": "endpoint"}
_IGNORED = "DataProtectionPolicy", "DeliveryStatusLogging"
_NOTHING = object()
"""The value of AWS::NoValue: the property is absent."""


class _Named(NamedTuple):
    """A resource of the template with a name."""

    section: str
    name: str


def translate_template(file: LocatedFile, home: tuple[str, str]) -> dict[str, Any]:
    """Return the tables of a seed file; other types become warnings."""
    resources = file.data.get("Resources")
    if not isinstance(resources, dict) or not resources:
        file.refuse(("Resources",), "has to be an object of resources")
        return {}
    template = _Template(file, home, resources)
    for logical_id, (kind, properties) in template.typed.items():
        template.add(logical_id, kind, properties)
    # Last, since a policy is of resources that may be further below.
    for logical_id, (kind, properties) in template.typed.items():
        if kind in _POLICIES:
            template.add_policy(logical_id, _POLICIES[kind], properties)
    return template.seed


class _Template:
    """A template whose names are known, so that references can be resolved."""

    def __init__(
        self, file: LocatedFile, home: tuple[str, str], resources: Mapping[str, Any]
    ) -> None:
        self._file = file
        self._home = home
        self.seed: dict[str, Any] = {"queues": {}, "topics": {}, "schedules": {}}
        self.seed["subscriptions"] = []
        self.typed: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._named: dict[str, _Named] = {}
        parameters = file.data.get("Parameters") or {}
        if not isinstance(parameters, dict):
            file.refuse(("Parameters",), "has to be an object of parameters")
            parameters = {}
        self._parameters = parameters
        for logical_id, one in resources.items():
            place: Place = ("Resources", logical_id)
            kind = one.get("Type") if isinstance(one, dict) else None
            properties = (one.get("Properties") or {}) if isinstance(one, dict) else None
            if not isinstance(kind, str) or not isinstance(properties, dict):
                file.refuse(place, "has to be an object with Type and Properties")
                continue
            self.typed[logical_id] = kind, properties
            if kind not in {*_NAMES, *_POLICIES, _SUBSCRIPTION}:
                file.warn(place, f"is ignored: {kind} is not a resource of SQS, SNS or Scheduler")
        # Names may refer to parameters, and attributes to resources further below.
        for logical_id, (kind, properties) in self.typed.items():
            if kind in _NAMES:
                section, member = _NAMES[kind]
                place = ("Resources", logical_id, "Properties")
                name = self._resolved(properties.get(member, _NOTHING), (*place, member))
                if name is _NOTHING:
                    name = logical_id + ".fifo" * _is_fifo(properties)
                self._named[logical_id] = _Named(section, _text(name))
                file.moved[section, _text(name)] = place

    def add(self, logical_id: str, kind: str, properties: Mapping[str, Any]) -> None:
        """Add the table of a resource."""
        place: Place = ("Resources", logical_id, "Properties")
        if kind == _SUBSCRIPTION:
            table = self._table(place, properties, ("Region",))
            self._file.moved["subscriptions", len(self.seed["subscriptions"])] = place
            self.seed["subscriptions"].append(table)
        elif kind in _NAMES:
            section, name = self._named[logical_id]
            member = _NAMES[kind][1]
            table = self._table(place, properties, (member, "FifoQueue", "FifoTopic"))
            for fifo in {"FifoQueue", "FifoTopic"} & properties.keys():
                if _is_fifo(properties) != name.endswith(".fifo"):
                    self._file.refuse((*place, fifo), f"{name} has to end in .fifo, as FIFO does")
            if name in self.seed[section]:
                self._file.refuse(place, f"{name} is in the template twice")
            self.seed[section][name] = table

    def _table(
        self, place: Place, properties: Mapping[str, Any], without: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return properties as fields of a seed, which takes names of the API, too."""
        table: dict[str, Any] = {}
        for name, given in properties.items():
            if name in _IGNORED:
                self._file.warn((*place, name), "is ignored")
            elif name not in without:
                value = self._resolved(given, (*place, name))
                if value is not _NOTHING:
                    field = _RENAMED.get(name, name)
                    table[field] = value
                    self._move(place, name, field)
        given = table.get("subscriptions")
        for number, one in enumerate(given if isinstance(given, list) else ()):
            if isinstance(one, dict):
                table["subscriptions"][number] = {
                    _RENAMED.get(name, name): value for name, value in one.items()
                }
        return table

    def _move(self, place: Place, name: str, field: str) -> None:
        named = self._named.get(str(place[1]))
        table: Place = ("subscriptions", len(self.seed["subscriptions"]))
        self._file.moved[(*(named or table), field)] = (*place, name)

    def add_policy(self, logical_id: str, member: str, properties: Mapping[str, Any]) -> None:
        """Set the policy of queues or topics of this template."""
        place: Place = ("Resources", logical_id, "Properties")
        targets = self._resolved(properties.get(member), (*place, member))
        document = self._resolved(properties.get("PolicyDocument"), (*place, "PolicyDocument"))
        for target in targets if isinstance(targets, list) else [targets]:
            section = member.lower()
            name = re.split("[:/]", _text(target))[-1]
            table = self.seed[section].get(name)
            if table is None:
                self._file.refuse((*place, member), f"{target!r} is not in this template")
                continue
            table["Policy"] = document
            self._file.moved[section, name, "Policy"] = (*place, "PolicyDocument")

    def _resolved(self, value: Any, place: Place) -> Any:
        """Return a value without functions; those of absent values are absent, too."""
        if isinstance(value, list):
            found = [self._resolved(one, (*place, n)) for n, one in enumerate(value)]
            return [one for one in found if one is not _NOTHING]
        if not isinstance(value, dict):
            return value
        functions: dict[str, Callable[[Any, Place], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._attribute,
            "Fn::Sub": self._substituted,
            "Fn::Join": self._joined,
        }
        [name, *others] = value or [""]
        if name in functions and not others:
            return functions[name](value[name], place)
        if name.startswith("Fn::"):
            allowed = ", ".join(functions)
            self._file.refuse(place, f"{name} is not supported: allowed are {allowed}")
            return _NOTHING
        members = {key: self._resolved(one, (*place, key)) for key, one in value.items()}
        return {key: one for key, one in members.items() if one is not _NOTHING}

    def _ref(self, given: Any, place: Place) -> Any:
        account_id, region = self._home
        name = _text(given)
        pseudo = {
            "AWS::Region": region,
            "AWS::AccountId": account_id,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": "queuegate",
            "AWS::NoValue": _NOTHING,
        }
        if name in pseudo:
            return pseudo[name]
        parameter = self._parameters.get(name)
        if isinstance(parameter, dict):
            if "Default" in parameter:
                return parameter["Default"]
            text = "has to have a Default: nobody is asked for it"
            self._file.refuse(("Parameters", name), text)
            return _NOTHING
        match self._named.get(name):
            case ("queues", found):
                return f"https://sqs.{region}.amazonaws.com/{account_id}/{found}"
            case ("topics", found):
                return arns.topic_arn(region, account_id, found)
            case (_, found):
                return found
        return self._foreign(name, place)

    def _attribute(self, given: Any, place: Place) -> Any:
        parts = given if isinstance(given, list) else [given]
        name, _, attribute = ".".join(map(str, parts)).partition(".")
        found = self._named.get(name)
        if found is None:
            return self._foreign(name, place)
        if found.section == "queues" and attribute == "Arn":
            return arns.queue_arn(self._home[1], self._home[0], found.name)
        return found.name if attribute.endswith("Name") else self._ref(name, place)

    def _foreign(self, name: str, place: Place) -> Any:
        """Return an ARN of a role for a resource of another type, or refuse an absent one."""
        if name in self.typed:
            return f"arn:aws:iam::{self._home[0]}:role/{name}"
        text = f"{name!r} is neither a resource nor a parameter of this template"
        self._file.refuse(place, text)
        return _NOTHING

    def _substituted(self, given: Any, place: Place) -> Any:
        text, own = given if isinstance(given, list) and len(given) == 2 else (given, {})

        def replace(match: re.Match[str]) -> str:
            is_literal, name = match[1], match[2].strip()
            if is_literal:
                return f"${{{name}}}"
            if isinstance(own, dict) and name in own:
                return _text(self._resolved(own[name], place))
            found = self._attribute(name, place) if "." in name else self._ref(name, place)
            return "" if found is _NOTHING else _text(found)

        return _VARIABLE.sub(replace, _text(text))

    def _joined(self, given: Any, place: Place) -> Any:
        if not (isinstance(given, list) and len(given) == 2 and isinstance(given[1], list)):
            self._file.refuse(place, "Fn::Join has to be a delimiter and a list")
            return _NOTHING
        return _text(given[0]).join(map(_text, self._resolved(given[1], place)))


def _is_fifo(properties: Mapping[str, Any]) -> bool:
    return True in (properties.get("FifoQueue"), properties.get("FifoTopic"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
