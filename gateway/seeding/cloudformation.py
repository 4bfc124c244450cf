"""CloudFormation templates as tables of a seed, as far as they hold resources of SQS, SNS and
Scheduler.

`Ref`, `Fn::GetAtt`, `Fn::Sub` and `Fn::Join` are resolved, with the defaults of parameters.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from queuegate.gateway.seeding.located_files import ROOT, FileKey, Items, LocatedFile, Table
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
_FIELDS = {"Tags": "tags", "Subscription": "subscriptions", "Endpoint": "endpoint"}
_FIFO = "FifoQueue", "FifoTopic"
_IGNORED = "DataProtectionPolicy", "DeliveryStatusLogging"
_FUNCTIONS = "Ref", "Fn::GetAtt", "Fn::Sub", "Fn::Join"
_NOTHING = object()
"""The value of AWS::NoValue: the property is absent."""


class _Resource(NamedTuple):
    """A resource of the template, with its section and its name if it has one."""

    key: FileKey
    kind: str
    properties: Table
    section: str = ""
    name: str = ""


def translate_template(file: LocatedFile, home: tuple[str, str]) -> Table:
    """Return the tables of a seed file; other types become warnings."""
    key, resources = _member(file.data, "Resources", ROOT)
    if not isinstance(resources, dict) or not resources:
        file.refuse(key, "has to be an object of resources")
        return {}
    template = _Template(file, home, resources)
    for one in template.resources.values():
        template.add(one)
    # Last, since a policy is of resources that may be further below.
    for one in template.resources.values():
        if one.kind in _POLICIES:
            template.add_policy(one, _POLICIES[one.kind])
    return {ROOT.below(section): table for section, table in template.seed.items()}


def _member(table: Table, name: str, above: FileKey) -> tuple[FileKey, Any]:
    """Return the key and the value of a member, which may be absent."""
    return next((item for item in table.items() if item[0] == name), (above.below(name), None))


class _Template:
    """A template whose names are known, so that references can be resolved."""

    def __init__(self, file: LocatedFile, home: tuple[str, str], resources: Table) -> None:
        self._file = file
        self._home = home
        self.seed: dict[str, Any] = {name: {} for name in ("queues", "topics", "schedules")}
        self.seed["subscriptions"] = Items([])
        self.resources: dict[str, _Resource] = {}
        key, given = _member(file.data, "Parameters", ROOT)
        declared = file.checked(key, given or {}, dict, "an object of parameters") or {}
        pseudo = {
            "AccountId": home[0],
            "Region": home[1],
            "Partition": "aws",
            "URLSuffix": "amazonaws.com",
            "StackName": "queuegate",
            "NoValue": _NOTHING,
        }
        self._parameters = {f"AWS::{name}": {"Default": value} for name, value in pseudo.items()}
        self._parameters |= declared
        for key, one in resources.items():
            kind = one.get("Type") if isinstance(one, dict) else None
            properties = (one.get("Properties") or {}) if isinstance(one, dict) else None
            if not isinstance(kind, str) or not isinstance(properties, dict):
                file.refuse(key, "has to be an object with Type and Properties")
                continue
            self.resources[key] = _Resource(key, kind, properties)
            if kind not in {*_NAMES, *_POLICIES, _SUBSCRIPTION}:
                file.warn(key, f"is ignored: {kind} is not a resource of SQS, SNS or Scheduler")
        # Names may refer to parameters, and attributes to resources further below.
        for logical_id, one in self.resources.items():
            if one.kind in _NAMES:
                section, member = _NAMES[one.kind]
                given = self._resolved(*_member(one.properties, member, one.key))
                is_named = given is not None and given is not _NOTHING
                name = _text(given) if is_named else logical_id + ".fifo" * _is_fifo(one)
                self.resources[logical_id] = one._replace(section=section, name=name)

    def add(self, one: _Resource) -> None:
        """Add the table of a resource."""
        if one.kind == _SUBSCRIPTION:
            self.seed["subscriptions"].keys.append(one.key)
            self.seed["subscriptions"].append(self._table(one.properties, ("Region",)))
        elif one.section:
            table = self._table(one.properties, (_NAMES[one.kind][1], *_FIFO))
            for name in one.properties:
                if name in _FIFO and _is_fifo(one) != one.name.endswith(".fifo"):
                    self._file.refuse(name, f"{one.name} has to end in .fifo, as FIFO does")
            if one.name in self.seed[one.section]:
                self._file.refuse(one.key, f"{one.name} is in the template twice")
            self.seed[one.section][one.key.renamed(one.name)] = table

    def _table(self, given: Table, without: tuple[str, ...] = ()) -> Table:
        """Return properties as fields of a seed, which takes names of the API, too."""
        table: Table = {}
        for key, value in given.items():
            found = _NOTHING if key in without else self._resolved(key, value)
            if key in _IGNORED:
                self._file.warn(key, "is ignored")
            elif found is not _NOTHING:
                if key == "Subscription" and isinstance(found, Items):
                    tables = [self._table(one) if isinstance(one, dict) else one for one in found]
                    found = Items(list(zip(found.keys, tables, strict=True)))
                elif key == "Tags" and isinstance(found, Items):
                    tags = [one for one in found if isinstance(one, dict)]
                    found = {_text(one.get("Key")): one.get("Value") for one in tags}
                table[key.renamed(_FIELDS.get(key, key))] = found
        return table

    def add_policy(self, one: _Resource, member: str) -> None:
        """Set the policy of queues or topics of this template."""
        key, targets = _member(one.properties, member, one.key)
        targets = self._resolved(key, targets)
        document_key, document = _member(one.properties, "PolicyDocument", one.key)
        for target in targets if isinstance(targets, list) else [targets]:
            table = self.seed[member.lower()].get(re.split("[:/]", _text(target))[-1])
            if table is None:
                self._file.refuse(key, f"{target!r} is not in this template")
                continue
            table[document_key.renamed("Policy")] = self._resolved(document_key, document)

    def _resolved(self, key: FileKey, value: Any) -> Any:
        """Return a value without functions; those of absent values are absent, too."""
        if isinstance(value, Items):
            pairs = [(k, self._resolved(k, one)) for k, one in zip(value.keys, value, strict=True)]
            return Items([pair for pair in pairs if pair[1] is not _NOTHING])
        if not isinstance(value, dict):
            return value
        [name, *others] = value or [""]
        if name in _FUNCTIONS and not others:
            return self._called(name, value[name], key)
        if name.startswith("Fn::"):
            text = f"{name} is not supported: allowed are {', '.join(_FUNCTIONS)}"
            self._file.refuse(key, text)
            return _NOTHING
        members = {k: self._resolved(k, one) for k, one in value.items()}
        return {k: one for k, one in members.items() if one is not _NOTHING}

    def _called(self, function: str, given: Any, key: FileKey) -> Any:
        match function:
            case "Ref":
                return self._ref(_text(given), "", key)
            case "Fn::GetAtt":
                parts = given if isinstance(given, list) else [given]
                name, _, attribute = ".".join(map(str, parts)).partition(".")
                return self._ref(name, attribute or "Arn", key)
            case "Fn::Sub":
                return self._substituted(given, key)
        if not (isinstance(given, list) and len(given) == 2 and isinstance(given[1], list)):
            self._file.refuse(key, "Fn::Join has to be a delimiter and a list")
            return _NOTHING
        return _text(given[0]).join(map(_text, self._resolved(key, given[1])))

    def _ref(self, name: str, attribute: str, key: FileKey) -> Any:
        """Return a resource, or an attribute of it, or a parameter."""
        account_id, region = self._home
        parameter_key, parameter = _member(self._parameters, name, key)
        if isinstance(parameter, dict):
            if "Default" not in parameter:
                text = "has to have a Default: nobody is asked for it"
                self._file.refuse(parameter_key, text)
            return parameter.get("Default", _NOTHING)
        one = self.resources.get(name)
        if one is None:
            text = f"{name!r} is neither a resource nor a parameter of this template"
            self._file.refuse(key, text)
            return _NOTHING
        if not one.section:
            return f"arn:aws:iam::{account_id}:role/{name}"
        if attribute.endswith("Name") or one.section == "schedules":
            return one.name
        if one.section == "topics":
            return arns.topic_arn(region, account_id, one.name)
        if attribute == "Arn":
            return arns.queue_arn(region, account_id, one.name)
        return f"https://sqs.{region}.amazonaws.com/{account_id}/{one.name}"

    def _substituted(self, given: Any, key: FileKey) -> str:
        text, own = given if isinstance(given, list) and len(given) == 2 else (given, {})

        def replace(match: re.Match[str]) -> str:
            is_literal, name = match[1], match[2].strip()
            if is_literal:
                return f"${{{name}}}"
            if isinstance(own, dict) and name in own:
                return _text(self._resolved(key, own[name]))
            name, _, attribute = name.partition(".")
            return _text(self._ref(name, attribute, key))

        return _VARIABLE.sub(replace, _text(text))


def _is_fifo(one: _Resource) -> bool:
    return True in (one.properties.get(name) for name in _FIFO)


def _text(value: Any) -> str:
    if value is _NOTHING:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
