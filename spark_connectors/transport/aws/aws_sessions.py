"""botocore sessions: profiles, regions, configured endpoints, and credentials that are renewed."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import botocore.session
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.credentials import Credentials as FixedCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
)

from spark_connectors.errors import ConnectorError, NotNow, Refused
from spark_connectors.transport.aws.connection import Connection, StaticCredentials
from spark_connectors.transport.aws.error_codes import code_of, is_passing
from spark_connectors.transport.http.http_connections import ServiceEndpoint, parse_endpoint

_ROLE_SESSION = "queuegate-spark"
_REGION_OF_GATEWAYS = "us-east-1"
NO_CREDENTIALS = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (any values do"
    " for a gateway that only wants some to be there), or name a profile or a role"
)


class SigningKeys(Protocol):
    """Credentials of one moment."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


class RenewedCredentials(Protocol):
    """Credentials that botocore renews when they are about to expire."""

    def get_frozen_credentials(self) -> SigningKeys: ...


class BotoSession(Protocol):
    """The used part of a botocore session."""

    @property
    def full_config(self) -> dict[str, Any]: ...
    def get_scoped_config(self) -> dict[str, Any]: ...
    def get_config_variable(self, name: str) -> Any: ...
    def set_config_variable(self, name: str, value: str) -> None: ...
    def get_credentials(self) -> RenewedCredentials | None: ...
    def create_client(self, service: str, **settings: Any) -> Any: ...


class _AssumedRole:
    """A credential provider of botocore for a role, on top of the original chain."""

    METHOD = "assume-role"

    def __init__(
        self,
        source: Callable[[], RenewedCredentials | None],
        create_client: Callable[..., Any],
        connection: Connection,
    ) -> None:
        self._source = source
        self._create_client = create_client
        self._connection = connection

    def load(self) -> RenewedCredentials | None:
        """Return credentials that call STS when they are first read; None without any to call it
        with."""
        source = self._source()
        if source is None:
            return None
        name = self._connection.role_session_name or _ROLE_SESSION
        fetcher = AssumeRoleCredentialFetcher(
            self._create_client,
            source,
            self._connection.role_arn,
            extra_args={"RoleSessionName": name},
        )
        credentials: RenewedCredentials = DeferredRefreshableCredentials(
            fetcher.fetch_credentials, self.METHOD
        )
        return credentials


def open_session(connection: Connection) -> BotoSession:
    """Open a session with the connection's profile, region and credentials. Makes no request.

    Raises ConnectorError for an unknown profile, or a broken configuration file.
    """
    session = botocore.session.Session(profile=connection.profile)
    try:
        session.get_scoped_config()
        if connection.region:
            session.set_config_variable("region", connection.region)
        if connection.role_arn:
            _assume_role(session, connection)
        elif connection.static is not None:
            session.set_credentials(
                connection.static.access_key_id,
                connection.static.secret_access_key,
                connection.static.session_token,
            )
    except BotoCoreError as error:
        raise ConnectorError(f"the AWS configuration cannot be used: {error}") from error
    opened: BotoSession = session
    return opened


def _assume_role(session: Any, connection: Connection) -> None:
    source = session.get_component("credential_provider").load_credentials
    if connection.static is not None:
        source = functools.partial(_static_credentials, connection.static)
    sts = functools.partial(_create_sts, session)
    role = _AssumedRole(source, sts, connection)
    session.register_component("credential_provider", CredentialResolver([role]))


def _static_credentials(static: StaticCredentials) -> RenewedCredentials:
    fixed: RenewedCredentials = FixedCredentials(
        static.access_key_id, static.secret_access_key, static.session_token
    )
    return fixed


def _create_sts(session: BotoSession, service: str, **settings: Any) -> Any:
    region = session.get_config_variable("region") or _REGION_OF_GATEWAYS
    return session.create_client(service, region_name=region, **settings)


def settle_region(session: BotoSession, *, may_default: bool) -> None:
    """Set the session's region if it has none: a gateway accepts any, so us-east-1 is the default.

    Raises ConnectorError when it needs one and ``may_default`` is false.
    """
    if not session.get_config_variable("region"):
        if not may_default:
            raise ConnectorError("no region is known for AWS: give one, or set AWS_DEFAULT_REGION")
        session.set_config_variable("region", _REGION_OF_GATEWAYS)


class KeySource:
    """The credentials of a session, renewed when they are about to expire."""

    def __init__(self, session: BotoSession) -> None:
        self._session = session
        self._credentials: RenewedCredentials | None = None
        self._lock = threading.Lock()

    def now(self) -> SigningKeys:
        """Return the keys to sign with now.

        Raises ConnectorError when there are none, NotNow when they are unavailable at
        present, and Refused when STS refuses the role.
        """
        try:
            credentials = self._credentials or self._find()
            keys = credentials.get_frozen_credentials()
        except ClientError as error:
            about, status = error.response["Error"], error.response["ResponseMetadata"]
            code, message = code_of(about["Code"]), f"{error.operation_name}: {about['Message']}"
            if is_passing(code, status["HTTPStatusCode"]):
                raise NotNow(f"{code}: {message}") from None
            raise Refused(code, message) from None
        except (BotoCoreError, RuntimeError) as error:
            # botocore raises RuntimeError when renewed credentials are as old as before.
            raise NotNow(f"credentials cannot be had at present: {error}") from error
        if "\n" in keys.access_key or "\n" in (keys.token or ""):
            raise ConnectorError("the AWS credentials that were found hold a line break")
        return keys

    def _find(self) -> RenewedCredentials:
        with self._lock:
            self._credentials = self._credentials or self._session.get_credentials()
        if self._credentials is None:
            raise ConnectorError(NO_CREDENTIALS)
        return self._credentials


def make_client(session: BotoSession, keys: KeySource, service: str, **settings: Any) -> Any:
    """Make a botocore client. Raises the errors of ``keys``, and ConnectorError for settings of the
    environment that botocore cannot use, such as an invalid region."""
    # botocore would look for credentials now, and raise its own errors.
    keys.now()
    try:
        return session.create_client(service, **settings)
    except (BotoCoreError, ValueError) as error:
        raise ConnectorError(f"{service.upper()} cannot be called: {error}") from error


SERVICES = ("sqs", "sns")
_AWS_DOMAINS = (
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "api.aws",
    "api.amazonwebservices.com.cn",
)


def is_aws_host(host: str) -> bool:
    """Return True for a host below one of AWS's domains."""
    return host.rstrip(".").endswith(tuple(f".{domain}" for domain in _AWS_DOMAINS))


def is_not_aws(known: Mapping[str, ServiceEndpoint]) -> bool:
    """Return True if endpoints are known, and none of them is AWS's."""
    return bool(known) and not any(is_aws_host(each.host) for each in known.values())


def kind_for(kind: str, known: Mapping[str, ServiceEndpoint]) -> str:
    """Return the transport that ``auto`` stands for with these endpoints; any other kind is
    itself."""
    if kind == "auto":
        return "lean" if is_not_aws(known) else "boto3"
    return kind


def configured(connection: Connection, session: BotoSession) -> dict[str, ServiceEndpoint]:
    """Return the known endpoints by service; those missing are AWS's.

    Sources in botocore's order: the connection's own, the environment's, the profile's.
    """
    if connection.endpoint_url is not None:
        return dict.fromkeys(SERVICES, parse_endpoint(connection.endpoint_url))
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return {}
    profile = session.get_scoped_config()
    found = {service: _configured_url(service, session, profile) for service in SERVICES}
    return {service: parse_endpoint(url) for service, url in found.items() if url}


def _configured_url(service: str, session: BotoSession, profile: Mapping[str, Any]) -> str | None:
    for variable in (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL"):
        if os.environ.get(variable):
            return os.environ[variable]
    services = session.full_config.get("services", {}).get(profile.get("services"), {})
    url: str | None = services.get(service, {}).get("endpoint_url") or profile.get("endpoint_url")
    return url
