"""boto3 as a client of EventBridge Scheduler, and of what its schedules reach."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.faces.clients import new_account

REGION = "us-east-1"
OFF = {"Mode": "OFF"}


@cache
def _session() -> Any:
    """One for all: it keeps the models that it has read."""
    return boto3.session.Session()


class Refusal:
    """A refusal as boto3 shows it."""

    def __init__(self, error: Any) -> None:
        response = error.response
        self.kind = type(error).__name__
        self.code: str = response["Error"]["Code"]
        self.text: str = response["Error"]["Message"]
        self.status: int = response["ResponseMetadata"]["HTTPStatusCode"]
        self.headers: dict[str, str] = response["ResponseMetadata"]["HTTPHeaders"]


class Scheduler:
    """An account's clients. Nothing is checked before it is sent, and nothing is repeated."""

    def __init__(self, url: str, account: str | None = None, region: str = REGION) -> None:
        self.url = url
        self.account = account or new_account()
        self.region = region
        self._clients: dict[str, Any] = {}
        self.api = self.client("scheduler")
        self.role = f"arn:aws:iam::{self.account}:role/fires"

    def client(self, service: str) -> Any:
        """A boto3 client of this account."""
        if service not in self._clients:
            self._clients[service] = _session().client(
                service,
                endpoint_url=self.url,
                region_name=self.region,
                aws_access_key_id=self.account,
                aws_secret_access_key="any",
                config=Config(
                    retries={"max_attempts": 0},
                    parameter_validation=False,
                    read_timeout=40,
                ),
            )
        return self._clients[service]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def call(self, operation: str, **members: Any) -> dict[str, Any]:
        """The members of the answer."""
        result: dict[str, Any] = getattr(self.api, operation)(**members)
        assert result.pop("ResponseMetadata")["HTTPStatusCode"] == 200
        return result

    def refusal(self, operation: str, **members: Any) -> Refusal:
        """Do it, and be refused."""
        try:
            result = self.call(operation, **members)
        except ClientError as error:
            return Refusal(error)
        raise AssertionError(f"{operation} was not refused: {result}")

    def queue_arn(self, name: str = "q") -> str:
        return f"arn:aws:sqs:{self.region}:{self.account}:{name}"

    def target(self, arn: str | None = None, **members: Any) -> dict[str, Any]:
        """A target; the queue ``q`` unless another is named."""
        return {"Arn": arn or self.queue_arn(), "RoleArn": self.role, **members}

    def members(self, name: str = "one", **changes: Any) -> dict[str, Any]:
        """Return the members of CreateSchedule and UpdateSchedule; the default time is in 2190."""
        given = {
            "Name": name,
            "ScheduleExpression": "cron(0 0 1 1 ? 2190)",
            "Target": self.target(),
            "FlexibleTimeWindow": OFF,
        }
        return {key: value for key, value in (given | changes).items() if value is not None}

    def create(self, name: str = "one", **changes: Any) -> str:
        """The ARN of a new schedule."""
        arn: str = self.call("create_schedule", **self.members(name, **changes))["ScheduleArn"]
        return arn

    def update(self, name: str = "one", **changes: Any) -> str:
        arn: str = self.call("update_schedule", **self.members(name, **changes))["ScheduleArn"]
        return arn

    def get(self, name: str = "one", **members: Any) -> dict[str, Any]:
        return self.call("get_schedule", Name=name, **members)

    def names(self, **members: Any) -> list[str]:
        """Names of schedules, on all pages."""
        return [one["Name"] for one in self._all("list_schedules", "Schedules", members)]

    def groups(self, **members: Any) -> list[str]:
        """Names of groups, on all pages."""
        found = self._all("list_schedule_groups", "ScheduleGroups", members)
        return [one["Name"] for one in found]

    def _all(self, operation: str, member: str, members: dict[str, Any]) -> list[dict[str, Any]]:
        page = self.call(operation, **members)
        found: list[dict[str, Any]] = page[member]
        while "NextToken" in page:
            page = self.call(operation, **members, NextToken=page["NextToken"])
            found += page[member]
        return found

    def group_arn(self, name: str) -> str:
        return f"arn:aws:scheduler:{self.region}:{self.account}:schedule-group/{name}"

    def state(self) -> list[Any]:
        """Everything that a refused request must not change."""
        found: list[Any] = []
        for group in self._all("list_schedule_groups", "ScheduleGroups", {}):
            tags = self.call("list_tags_for_resource", ResourceArn=group["Arn"])
            found.append((group, tags))
        for one in self._all("list_schedules", "Schedules", {}):
            found.append(self.get(one["Name"], GroupName=one["GroupName"]))
        return found
