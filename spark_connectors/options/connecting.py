"""Options that say where the service is and who calls: the same for every source and sink."""

from __future__ import annotations

from typing import Any

from spark_connectors.errors import Refused
from spark_connectors.options.declaring import TEXT, TRUTH, BadOption, Option, choice, whole
from spark_connectors.transport.aws import (
    Connection,
    StaticCredentials,
    Transport,
    open_transport,
)

_NO_RIGHT = frozenset({"AccessDenied", "AuthorizationError"})

CONNECTING = (
    Option(
        "endpointUrl",
        TEXT,
        None,
        "Where the service is, such as `http://localhost:9324`.",
        ("endpoint",),
        "`AWS_ENDPOINT_URL_SQS`, `AWS_ENDPOINT_URL_SNS`, `AWS_ENDPOINT_URL`, then AWS",
    ),
    Option("region", TEXT, None, "Region to sign for.", (), "as botocore finds it"),
    Option("profile", TEXT, None, "Profile of the AWS configuration files."),
    Option("roleArn", TEXT, None, "Role to assume, with the credentials found otherwise."),
    Option("roleSessionName", TEXT, None, "Name of that role's session.", (), "`queuegate-spark`"),
    Option(
        "transport",
        choice("auto", "lean", "boto3"),
        "auto",
        "`lean` costs a fifth of boto3's CPU; `auto` is `lean` for an endpoint, `boto3` for AWS.",
    ),
    Option(
        "maxRetries",
        whole(0, 100),
        8,
        "How often a call, or an entry of a batch, that failed for a passing reason is repeated.",
    ),
    Option(
        "allowStaticCredentials",
        TRUTH,
        False,
        "Whether keys may stand among the options, which Spark shows in plans and logs.",
    ),
    Option("accessKeyId", TEXT, None, "Only with `allowStaticCredentials`.", ("awsAccessKeyId",)),
    Option("secretAccessKey", TEXT, None, "Likewise.", ("awsSecretAccessKey", "awsSecretKey")),
    Option("sessionToken", TEXT, None, "Likewise.", ("awsSessionToken",)),
)
QUEUE = (
    Option("queueUrl", TEXT, None, "The queue; this or `queueName`.", ("sqsUrl",), "required"),
    Option("queueName", TEXT, None, "The queue by name."),
    Option("queueOwnerAWSAccountId", TEXT, None, "Whose queue `queueName` is."),
)


def connection_of(options: dict[str, Any]) -> Connection:
    """Where and as whom. Raises BadOption when keys are given and not allowed, or half of them."""
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
    return Connection(
        endpoint_url=options["endpointUrl"],
        region=options["region"],
        profile=options["profile"],
        role_arn=options["roleArn"],
        role_session_name=options["roleSessionName"],
        static=static,
        kind=options["transport"],
        max_retries=options["maxRetries"],
    )


class QueuePlace:
    """The queue that options name; its URL is asked for once, when it is first needed."""

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
        """Whether it is a FIFO queue: those are known by their names."""
        return self.name.endswith(".fifo")

    def check(self, connection: Connection) -> None:
        """Raise Refused for a queue that does not exist, NotNow for an endpoint that does not
        answer, ConnectorError for one that is none or when there are no credentials."""
        transport = open_transport(connection)
        try:
            transport.figures(self.url(transport))
        except Refused as no:
            # Who may only send needs no right to look.
            if no.code not in _NO_RIGHT:
                what = self._url or f"queue '{self.name}'"
                raise Refused(no.code, f"{no.message} (asking for {what})") from None
        finally:
            transport.close()

    def url(self, transport: Transport) -> str:
        """The queue's URL. Raises what Transport.queue_url raises."""
        if self._url is None:
            assert self._name is not None
            self._url = transport.queue_url(self._name, self._owner)
        return self._url
