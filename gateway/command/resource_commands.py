"""`queuegate queues`, `topics`, `schedules`, `pause` and `resume`, at a running gateway."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queuegate.gateway.command import redrive_command
from queuegate.gateway.command.command_line import (
    CommandRefused,
    add_options,
    age,
    counted,
    escaped,
    plain,
    print_facts,
    span,
    whole_number,
)
from queuegate.gateway.command.gateway_actions import YES, ActionClient, Actions, cell
from queuegate.gateway.command.gateway_client import GatewayClient, GatewayRefused
from queuegate.gateway.configuration.settings import Settings
from queuegate.protocol.malformed import refusing

_ABOUT = """\
Inspect and change {noun} through a running gateway. Actions that delete ask for confirmation,
unless --yes is given. --json prints one JSON document.

examples:
"""
_EXAMPLES = {
    "queues": """\
  queuegate queues list --watch
  queuegate queues create orders --dead-letters orders-dead --max-receives 3
  queuegate queues send orders '{"order": 42}' --attribute tenant=acme
  queuegate queues receive orders --delete
  queuegate queues redrive orders-dead --all
""",
    "topics": "  queuegate topics publish orders '{\"order\": 42}' --attribute tenant=acme",
    "schedules": """\
  queuegate schedules create report --every 15m --queue jobs '{"report": "sales"}'
  queuegate schedules list --watch 5
""",
    "pause": "  queuegate pause subscription arn:aws:sns:us-east-1:000000000000:orders:8f14e...",
    "resume": "  queuegate resume queue jobs",
}
_WATCH = "--watch [SECONDS]  print again every 2 s, or other seconds, until Ctrl-C"
_LIST_OPTIONS = f"--prefix P  list only names with this prefix\n{_WATCH}"
_BODIES = "--bodies  print complete bodies only, one a line"
_PEEK_OPTIONS = f"""\
--state STATE  list only visible, in_flight or delayed messages
--group ID     list only messages of this group
--limit N      maximum number (default: 50)
{_BODIES}
{_WATCH}
"""
_RECEIVE_OPTIONS = f"""\
--max N               maximum number of messages (default: 1)
--wait SECONDS        wait for messages, at most 20 s (default: the setting of the queue)
--visibility SECONDS  hide the messages for this time (default: the setting of the queue)
--delete              delete the messages after they are printed
{_BODIES}
"""
_CONTENT = "[body] BODY  message; - is standard input\n--file FILE  read the message from a file"
_FIFO = """\
--attribute NAME=VALUE ...  message attribute of type String; may be repeated
--group ID                  message group of a FIFO queue or topic
--deduplication-id ID       deduplication id of a FIFO queue or topic
"""
_SEND_OPTIONS = f"--delay SECONDS  hide the message first\n{_FIFO}"
_PUBLISH_OPTIONS = f"--subject TEXT  subject\n{_FIFO}"
_ATTRIBUTES = "--attribute NAME=VALUE ...  attribute, as in AWS; may be repeated"
_CREATE_OPTIONS = f"""\
--dead-letters QUEUE  dead-letter queue
--max-receives N      with --dead-letters: receives before a message moves there (default: 3)
{_ATTRIBUTES}
"""
_TIMES = """\
--every AGE      an interval, such as 15m
--cron FIELDS    five fields, such as '0 9 * * 1-5'
--when TEXT      plain English, such as 'every weekday at 9am'
--fire-at TIME   one instant of ISO 8601
"""
_SCHEDULE_OPTIONS = """\
message JSON     message in JSON
--queue QUEUE    send the message to this queue
--event KEY      publish the message as an event with this routing key
--group ID       message group of a FIFO queue
--timezone ZONE  such as Europe/Berlin (default: UTC)
"""
_NOUNS = ("queue", "topic", "schedule")
_FORMS = ("every", "cron", "when", "fire_at")
_MAX_RECEIVES = 3
_MOST_SHOWN = 50
_PAGE_MESSAGES = 1_000
_PAGE_QUEUES = 100

_SUBJECTS = {
    **{f"{noun}s": f"name {noun.upper()}  name of the {noun}" for noun in _NOUNS},
    **dict.fromkeys(("pause", "resume"), "name NAME  a name, or the ARN of a subscription"),
}
_COMMANDS = {command: Actions(subject) for command, subject in _SUBJECTS.items()}
_queues, _topics, _schedules, _pauses, _resumes = _COMMANDS.values()


def _seconds(text: str) -> int:
    return 0 if text == "0" else int(age(text))


def _piped(text: str) -> str:
    with refusing(argparse.ArgumentTypeError("the message is not UTF-8"), UnicodeError):
        return sys.stdin.buffer.read().decode() if text == "-" else text.encode().decode()


def _file(text: str) -> str:
    with refusing(argparse.ArgumentTypeError, OSError, UnicodeError):
        return Path(text).read_bytes().decode()


def _json(text: str) -> object:
    refusal = argparse.ArgumentTypeError(f"{text[:60]!r} is not JSON, such as '\"text\"'")
    with refusing(refusal, ValueError, RecursionError):
        return json.loads(text)


_PARSERS: dict[str, Callable[[str], object]] = {
    "body": _piped,
    "file": _file,
    "message": _json,
    "max": whole_number,
    "max_receives": whole_number,
    "wait": _seconds,
    "visibility": _seconds,
    "delay": _seconds,
    "watch": whole_number,
    **redrive_command.PARSERS,
}
"""Parsers of options, by name."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the actions of one of the commands."""
    noun = command.prog.rpartition(" ")[2]
    command.description = _ABOUT.format(noun=noun) + _EXAMPLES[noun]
    command.set_defaults(noun=noun)
    _COMMANDS[noun].add_to(command, _add_json, parsers=_PARSERS)


def _add_json(action: argparse.ArgumentParser) -> None:
    add_options(action, "--json  print one JSON document")


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; return 0, or 1 if it was refused."""
    client = ResourceClient(GatewayClient(settings, options, "resources"), options)
    seconds = getattr(options, "watch", None)
    return client.run() if seconds is None else client.watch(2.0 if seconds is True else seconds)


class ResourceClient(ActionClient):
    """A client of queues, topics and schedules, with the options and the output of one action."""

    def __init__(self, gateway: GatewayClient, options: argparse.Namespace) -> None:
        super().__init__(gateway, options)
        self.name: str = getattr(options, "name", "")
        self.on_terminal = sys.stdout.isatty()

    def watch(self, seconds: float) -> int:
        """Run the action again and again until Ctrl-C, which is no error."""
        try:
            while True:
                with contextlib.redirect_stdout(io.StringIO()) as frame:
                    self.options.perform(self)
                lines = frame.getvalue().splitlines()
                if self.on_terminal:
                    width, height = shutil.get_terminal_size()
                    lines = [line[:width] for line in lines[: height - 1]]
                    print("\x1b[H\x1b[2J", end="")
                print("\n".join(lines), flush=True)
                time.sleep(seconds)
        except KeyboardInterrupt:
            # The prompt of the shell starts on a line of its own, after the ^C of the terminal.
            print(end="\n" if self.on_terminal else "", flush=True)
        except BrokenPipeError:
            sys.stdout = None
        return 0

    def pages(self, noun: str, **query: object) -> Iterator[dict[str, Any]]:
        """Yield all of a list, by name."""
        after = ""
        while page := self.call_all("GET", noun, **query, after=after):
            yield from page
            after = page[-1]["name"]

    def read(self, listed: dict[str, Any]) -> dict[str, Any]:
        """Return the resource of a list, or what the list has of it if it cannot be read."""
        try:
            return {**listed, **self.call_all("GET", self.options.noun, listed["name"])}
        except GatewayRefused:
            return listed

    def print_json(self, found: Any) -> None:
        """Print one document, on one line if more follow. A terminal gets ASCII only."""
        indent = None if getattr(self.options, "watch", None) else 2
        print(json.dumps(found, indent=indent, ensure_ascii=self.on_terminal))

    def print_facts(self, facts: dict[str, Any]) -> None:
        """Print names and values, one a line, or JSON."""
        if self.options.json:
            self.print_json(facts)
        else:
            known = {name: value for name, value in facts.items() if value not in (None, "", [])}
            print_facts({name: escaped(cell(name, value)) for name, value in known.items()})

    def print_messages(self, found: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
        """Print messages as a table, as their bodies or as JSON."""
        if self.options.bodies:
            for message in found:
                body = message.get("Body", message.get("body", ""))
                print(escaped(body) if self.on_terminal else body)
        else:
            shown = found if self.options.json else [_message_row(one) for one in found]
            self.show(shown, columns, f"No messages in {self.name}.")


def _message_row(message: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of a message in the form of SQS, or of the native API."""
    system = message.get("Attributes") or message["attributes"]
    sent_at = datetime.fromtimestamp(int(system["SentTimestamp"]) / 1000, UTC)
    return {
        "message_id": message.get("MessageId") or message["message_id"],
        "sent_at": f"{sent_at:%Y-%m-%dT%H:%M:%SZ}",
        "state": message.get("state"),
        "receives": system["ApproximateReceiveCount"],
        "group": system.get("MessageGroupId"),
        "body": escaped(message.get("Body", message.get("body", ""))),
    }


@_queues("list", "list queues", _LIST_OPTIONS)
def _list_queues(client: ResourceClient) -> None:
    """List queues by name: all their messages (DEPTH), those in flight and delayed, the age of the
    oldest, and the depth of the dead-letter queue. A row of dashes is a queue that was deleted
    meanwhile, or that the key may not read."""
    prefix = client.options.prefix or ""
    listed = client.pages("queues", name_prefix=prefix, metrics="true", limit=_PAGE_QUEUES)
    found = [{**one, **one.pop("metrics", {})} for one in listed]
    measured = {one["name"]: one for one in found}
    for one in found:
        if dead := one.get("dead_letter_queue"):
            if dead not in measured:
                measured[dead] = client.read({"name": dead})
            one["dead_letters"] = measured[dead].get("queue_length")
    columns = ("queue", "depth", "in_flight", "delayed", "oldest", "dead_letters", "paused")
    shown = found if client.options.json else [_queue_row(one) for one in found]
    client.show(shown, columns, "There are no queues.")


def _queue_row(facts: Mapping[str, Any]) -> dict[str, Any]:
    oldest, dead = facts.get("oldest_msg_age_sec"), facts.get("dead_letters")
    return {
        "queue": facts["name"],
        "depth": facts.get("queue_length"),
        "in_flight": facts.get("queue_in_flight_length"),
        "delayed": facts.get("queue_delayed_length"),
        "oldest": None if oldest is None else span(oldest),
        "dead_letters": None if dead is None else f"{dead:,} in {facts['dead_letter_queue']}",
        "paused": "paused" if facts.get("paused_at") else "",
    }


@_queues("show", "show a queue", _WATCH)
def _show_queue(client: ResourceClient) -> None:
    """Show the metrics of a queue, and its attributes as in AWS."""
    facts = client.call_all("GET", "queues", client.name)
    asked = {"QueueUrl": client.name, "AttributeNames": ["All"]}
    attributes = client.gateway.aws("AmazonSQS.GetQueueAttributes", **asked)["Attributes"]
    shown = {"attributes": attributes} if client.options.json else attributes
    client.print_facts({**facts, **shown})


@_queues("create", "create a queue", _CREATE_OPTIONS)
def _create_queue(client: ResourceClient) -> None:
    """Create a queue. The name of a FIFO queue ends in .fifo. A queue that exists with the same
    attributes is a success.

    examples:
      queuegate queues create orders --attribute VisibilityTimeout=60
      queuegate queues create orders.fifo --dead-letters orders-dead.fifo
    """
    options = client.options
    attributes = dict(options.attribute)
    if client.name.endswith(".fifo"):
        attributes.setdefault("FifoQueue", "true")
    if options.dead_letters:
        asked = {"QueueUrl": options.dead_letters, "AttributeNames": ["QueueArn"]}
        found = client.gateway.aws("AmazonSQS.GetQueueAttributes", **asked)["Attributes"]
        policy = {"deadLetterTargetArn": found["QueueArn"]}
        most = options.max_receives or _MAX_RECEIVES
        attributes["RedrivePolicy"] = json.dumps({**policy, "maxReceiveCount": most})
    elif options.max_receives:
        raise CommandRefused("--max-receives needs --dead-letters")
    made = client.gateway.aws("AmazonSQS.CreateQueue", QueueName=client.name, Attributes=attributes)
    client.done(f"{client.name} exists: {made['QueueUrl']}", **made)


@_queues("send", "send a message", _SEND_OPTIONS, _CONTENT)
def _send(client: ResourceClient) -> None:
    """Send a message, unchanged. If no answer arrives, the command tries again: the message may be
    sent twice.

    examples:
      queuegate queues send orders '{"order": 42}' --delay 5m
      queuegate queues send orders - < order.json
    """
    delay = client.options.delay
    members = _message_members(client.options, "MessageBody", DelaySeconds=delay)
    sent = client.gateway.aws("AmazonSQS.SendMessage", QueueUrl=client.name, **members)
    client.done(f"Message {sent['MessageId']} is sent.", **sent)


def _message_members(options: argparse.Namespace, content: str, **more: object) -> dict[str, Any]:
    """Return the members that SendMessage and Publish share, without those that are not given."""
    given = {
        content: options.file if options.body is None else options.body,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in options.attribute
        },
        "MessageGroupId": options.group,
        "MessageDeduplicationId": options.deduplication_id,
    }
    return {name: value for name, value in {**given, **more}.items() if value is not None}


@_queues("receive", "receive messages", _RECEIVE_OPTIONS)
def _receive(client: ResourceClient) -> None:
    """Receive messages and print them. Other receivers do not get them until the visibility timeout
    ends. --delete deletes them after they are printed.

    examples:
      queuegate queues receive orders --wait 20 --delete
      queuegate queues receive orders --max 100 --delete --bodies > orders.txt
    """
    options, queue = client.options, {"queue": client.name}
    limits = {"max": options.max or 1, "wait": options.wait}
    limits["visibility_timeout"] = options.visibility
    wanted = {"attributes": ["All"], "message_attributes": ["All"]}
    found = client.call_all("POST", "receipts", body={**queue, **limits, **wanted})["messages"]
    client.print_messages(found, ("message_id", "sent_at", "receives", "group", "body"))
    sys.stdout.flush()
    if options.delete and found:
        handles = {"receipt_handles": [one["ReceiptHandle"] for one in found]}
        failed = client.call_all("DELETE", "receipts", body={**queue, **handles})["failed"]
        if failed:
            count = counted(len(failed), "message")
            raise CommandRefused(f"{count} not deleted: {failed[0]['Message']}")


@_queues("peek", "show messages without receiving them", _PEEK_OPTIONS)
def _peek(client: ResourceClient) -> None:
    """Show messages without receiving them: no receive is counted, and no message is hidden."""
    options = client.options
    query = {"state": options.state, "group_id": options.group}
    most = options.limit or _MOST_SHOWN
    found: list[dict[str, Any]] = []
    while len(found) < most:
        limit = min(most - len(found), _PAGE_MESSAGES)
        page = client.call_all("GET", "queues", client.name, "browse", **query, limit=limit)
        found += page["messages"]
        if page["next"] is None:
            break
        query |= {"after": page["next"], "as_of": page["as_of"]}
    client.print_messages(found, ("message_id", "sent_at", "state", "receives", "group", "body"))


@_queues("purge", "delete all messages", YES)
def _purge(client: ResourceClient) -> None:
    """Delete all messages of a queue permanently, in flight and delayed ones, too."""
    depth = client.call_all("GET", "queues", client.name)["queue_length"]
    client.agree(f"Delete {counted(depth, 'message')} of {client.name} permanently?")
    deleted = client.call_all("POST", "queues", client.name, "purge")["deleted"]
    client.done(f"{counted(deleted, 'message')} deleted.", deleted=deleted)


@_queues("redrive", "move dead letters back", redrive_command.OPTIONS)
def _redrive(client: ResourceClient) -> int:
    """Move dead letters back to their source queues, or to another queue. `queuegate redrive` is
    the same command.

    examples:
      queuegate queues redrive orders-dead --all --dry-run
      queuegate queues redrive orders-dead --attribute ErrorCode=Timeout* --older-than 15m
    """
    return redrive_command.redrive(client.gateway, client.options)


@_topics("list", "list topics", _LIST_OPTIONS)
def _list_topics(client: ResourceClient) -> None:
    """List topics by name, with the numbers of their subscriptions."""
    prefix = client.options.prefix or ""
    found = [client.read(one) for one in client.pages("topics") if one["name"].startswith(prefix)]
    columns = ("name", "subscriptions_confirmed", "subscriptions_pending", "paused_at")
    client.show(found, columns, "There are no topics.")


@_topics("show", "show a topic and its subscriptions", _WATCH)
def _show_topic(client: ResourceClient) -> None:
    """Show the settings of a topic, and its subscriptions."""
    facts = client.call_all("GET", "topics", client.name)
    subscriptions = [*_subscriptions(client, facts["arn"])]
    if client.options.json:
        client.print_json({**facts, "subscriptions": subscriptions})
        return
    client.print_facts(facts)
    print()
    client.show(subscriptions, ("Protocol", "Endpoint", "SubscriptionArn"), "No subscriptions.")


def _subscriptions(client: ResourceClient, arn: str) -> Iterator[dict[str, Any]]:
    members = {"TopicArn": arn}
    while True:
        page = client.gateway.aws("AmazonSNS.ListSubscriptionsByTopic", **members)
        yield from page["Subscriptions"]
        if not page.get("NextToken"):
            return
        members["NextToken"] = page["NextToken"]


@_topics("create", "create a topic", _ATTRIBUTES)
def _create_topic(client: ResourceClient) -> None:
    """Create a topic. The name of a FIFO topic ends in .fifo."""
    attributes = dict(client.options.attribute)
    if client.name.endswith(".fifo"):
        attributes.setdefault("FifoTopic", "true")
    made = client.gateway.aws("AmazonSNS.CreateTopic", Name=client.name, Attributes=attributes)
    client.done(f"{client.name} exists: {made['TopicArn']}", **made)


@_topics("publish", "publish a message", _PUBLISH_OPTIONS, _CONTENT)
def _publish(client: ResourceClient) -> None:
    """Publish a message, unchanged, to all subscriptions of a topic. If the gateway cannot be
    reached, the command tries again: a message may be published twice.

    examples:
      queuegate topics publish orders '{"order": 42}' --attribute tenant=acme
      queuegate topics publish orders - < order.json
    """
    members = _message_members(client.options, "Message", Subject=client.options.subject)
    arn = client.call_all("GET", "topics", client.name)["arn"]
    sent = client.gateway.aws("AmazonSNS.Publish", TopicArn=arn, **members)
    client.done(f"Message {sent['MessageId']} is published.", **sent)


@_schedules("list", "list schedules", _LIST_OPTIONS)
def _list_schedules(client: ResourceClient) -> None:
    """List schedules by name, with their times and their last error."""
    found = client.pages("schedules", name_prefix=client.options.prefix or "")
    columns = ("name", "status", "next_fire_at", "human_readable", "fired_count", "last_error")
    client.show(found, columns, "There are no schedules.")


@_schedules("show", "show a schedule", _WATCH)
def _show_schedule(client: ResourceClient) -> None:
    """Show the target, the next times and the state of a schedule."""
    client.print_facts(client.call_all("GET", "schedules", client.name))


@_schedules("create", "create a schedule", _SCHEDULE_OPTIONS, _TIMES)
def _create_schedule(client: ResourceClient) -> None:
    """Create a schedule that sends a message to a queue, or publishes an event.

    examples:
      queuegate schedules create report --cron '0 9 * * 1-5' --queue jobs '{"report": "sales"}'
      queuegate schedules create check --every 15m --event orders.check '{"deep": true}'
    """
    options = client.options
    if bool(options.queue) == bool(options.event):
        raise CommandRefused("a schedule needs --queue or --event")
    target = {"kind": "topic", "routing_key": options.event, "message": options.message}
    if options.queue:
        target = {"kind": "queue", "queue_name": options.queue, "message": options.message}
        target |= {"group_id": options.group} if options.group else {}
    body = {"name": client.name, "timezone": options.timezone or "UTC", "target": target}
    body |= {form: text for form in _FORMS if (text := getattr(options, form)) is not None}
    made = client.call_all("POST", "schedules", body=body)
    client.done(f"{client.name}: {made['human_readable']}. Next: {made['next_fire_at']}.", **made)


@_schedules("run", "run a schedule now")
def _run_schedule(client: ResourceClient) -> None:
    """Run a schedule now, out of turn, also while it is paused."""
    made = client.call_all("POST", "schedules", client.name, "runs")
    client.done(f"{client.name}: {counted(len(made['messages']), 'message')} sent.", **made)


def _delete(client: ResourceClient) -> None:
    """Delete a queue with its messages and its archive, a topic with its subscriptions, or a
    schedule, permanently."""
    noun, name = client.options.noun, client.name
    facts = client.call_all("GET", noun, name)
    held = counted(facts["queue_length"], "message") if noun == "queues" else "its settings"
    client.agree(f"Delete the {noun[:-1]} {name} with {held} permanently?")
    if noun == "topics":
        client.gateway.aws("AmazonSNS.DeleteTopic", TopicArn=facts["arn"])
    else:
        client.call_all("DELETE", noun, name)
    client.done(f"{name} is deleted.", deleted=name)


def _pause(client: ResourceClient) -> None:
    """Pause until `resume`. Receives from a paused queue return no messages, on every API; sends
    and deletes continue. Deliveries to the web hooks of a paused topic or subscription wait;
    publishes and copies in queues continue. A paused schedule does not fire."""
    _set_paused(client, is_paused=True)


def _resume(client: ResourceClient) -> None:
    """End a pause. Receives and waiting deliveries continue at once."""
    _set_paused(client, is_paused=False)


for _noun in (_queues, _topics, _schedules):
    _noun("pause", "pause until `resume`")(_pause)
    _noun("resume", "end a pause")(_resume)
    _noun("delete", "delete permanently", YES)(_delete)
for _one in ("queue", "topic", "subscription"):
    _pauses(_one, f"a {_one}")(_pause)
    _resumes(_one, f"a {_one}")(_resume)


def _set_paused(client: ResourceClient, *, is_paused: bool) -> None:
    noun, name, state = client.options.noun, client.name, "paused" if is_paused else "resumed"
    if noun in ("pause", "resume"):
        noun = client.options.action + "s"
    if noun == "schedules":
        client.call_all("PATCH", noun, name, body={"status": "paused" if is_paused else "active"})
    else:
        place: tuple[str, ...] = (noun, name)
        if noun == "subscriptions":
            pattern, _, subscription_id = name.rpartition(":")
            place = ("events", pattern.rpartition(":")[2], noun, subscription_id)
            if not all(place):
                raise CommandRefused(f"'{plain(name)}' is not the ARN of a subscription")
        client.call_all("PUT" if is_paused else "DELETE", *place, "pause")
    client.done(f"The {noun[:-1]} {plain(name)} is {state}.", name=name, paused=is_paused)
