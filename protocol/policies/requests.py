"""What policies are asked about: who wants to do what with which resource, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Context = Mapping[str, Sequence[str]]
"""The values of condition keys, by their names in lower case: names are not case-sensitive. A key
without a value is one that is not there."""


class Principal(NamedTuple):
    """Who makes a request: somebody of an account, a service, or nobody in particular."""

    account_id: str = ""
    """Empty of services and of whoever is anonymous."""
    arns: tuple[str, ...] = ()
    """Everything that the caller is called: of a user its ARN, of the session of a role that of the
    role and its own; of an account itself (its root user) that of its root."""
    service: str = ""
    """Of a service of AWS's its name, such as `sns.amazonaws.com`."""

    @property
    def is_account(self) -> bool:
        """Whether it is the account itself."""
        return bool(self.account_id) and self.arns == (account_arn(self.account_id),)


class Request(NamedTuple):
    """One request, as far as policies know it."""

    principal: Principal
    action: str
    """With its service: `sqs:SendMessage`."""
    resource: str
    """Its ARN."""
    owner_id: str
    """The account that the resource belongs to."""
    context: Context


def account_arn(account_id: str) -> str:
    """How policies name an account."""
    return f"arn:aws:iam::{account_id}:root"
