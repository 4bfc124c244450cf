"""What `queuegate serve` prints when it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.gateway.http.listening import Doors, places_of, url_of

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings


def banner(settings: Settings, doors: Doors) -> str:
    """The endpoint, where it listens, what its faces are, where the data is, how to stop, a first
    queue by curl, and a first message and topic in a few lines of Python."""
    url = settings.base_url or url_of(doors.public, settings.hosts, settings.scheme)
    key, secret, by_curl = "any", "any", "-H 'Authorization: any'"
    if settings.auth == "sigv4":
        key, secret = "KEY", "SECRET"
        by_curl = f"--aws-sigv4 aws:amz:{settings.region}:sqs --user KEY:SECRET"
    let_in = _LET_IN if settings.policy_mode == "enforce" else ""
    return f"""\
Queuegate is ready: {url}
  listen   {" ".join(places_of(doors.public))}
{_faces(settings, url)}{_operators(settings, doors)}\
  data     {_data(settings)}
  stop     Ctrl-C

With curl, from another terminal:
  curl {by_curl} {url} -d Action=CreateQueue -d QueueName=hello
With boto3 (pip install boto3):

import boto3; at = dict(endpoint_url="{url}", region_name="{settings.region}", \
aws_access_key_id="{key}", aws_secret_access_key="{secret}")
sqs, sns = boto3.client("sqs", **at), boto3.client("sns", **at)
url = sqs.create_queue(QueueName="hello")["QueueUrl"]; sqs.send_message(QueueUrl=url, \
MessageBody="Hello")
print(sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"])

{let_in}\
topic = sns.create_topic(Name="news")["TopicArn"]; sns.subscribe(TopicArn=topic, Protocol="sqs", \
Endpoint="arn:aws:sqs:{settings.region}:{settings.account_id}:hello")
sns.publish(TopicArn=topic, Message="Hello, topic")
print(sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"])
"""


_LET_IN = """\
sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": '{"Statement": {"Effect": "Allow", \
"Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}}'}); """
"""Where policies are enforced, SNS needs a queue's, as on AWS."""
_FACES = {
    "rest": "/v1/openapi.json describes the native API, with schedules and events",
    "simple": "/api/openapi.json describes queues with an id and a size",
    "text": "/queue/openapi.json describes queues in plain text",
    "channels": "/v1/channels/openapi.json describes priorities and push",
    "log": "/v1/logs/openapi.json describes logs and their groups",
}


def _faces(settings: Settings, url: str) -> str:
    """A line for each that is on, but for AWS's, which has the examples."""
    return "".join(
        f"  {name:8} {url}{text}\n" for name, text in _FACES.items() if name in settings.faces
    )


def _operators(settings: Settings, doors: Doors) -> str:
    if settings.operations_address is None:
        return ""
    url = url_of(doors.operators, settings.operations_address[0])
    return f"  operate  {url}/metrics, /livez and /readyz\n"


def _data(settings: Settings) -> str:
    if settings.database_url is not None:
        from queuegate.storage.preflight import shown

        return f"PostgreSQL at {shown(settings.database_url)}"
    if settings.ephemeral:
        return "ephemeral: everything is gone when this stops"
    return f"{settings.data_dir} (the next start finds it)"
