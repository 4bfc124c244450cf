"""Options that say where SQS and SNS are and who calls: the same for every source and sink."""

from __future__ import annotations

from typing import Any

from spark_connectors.options.declaring import TEXT, TRUTH, BadOption, Option, choice
from spark_connectors.options.endpoints import ENDPOINT, RETRIES
from spark_connectors.transport.aws import Connection, StaticCredentials

CONNECTING = (
    ENDPOINT._replace(
        shown="`AWS_ENDPOINT_URL_SQS`, `AWS_ENDPOINT_URL_SNS`, `AWS_ENDPOINT_URL`, then AWS"
    ),
    Option("region", TEXT, None, "Region to sign for.", (), "as botocore finds it"),
    Option("profile", TEXT, None, "Profile of the AWS configuration files."),
    Option("roleArn", TEXT, None, "Role to assume, with the credentials found otherwise."),
    Option("roleSessionName", TEXT, None, "Name of that role's session.", (), "`queuegate-spark`"),
    Option(
        "transport",
        choice("auto", "lean", "boto3"),
        "auto",
        "`lean` costs an eighth of boto3's CPU; `auto` is `lean` for an endpoint, `boto3` for AWS.",
    ),
    RETRIES,
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
