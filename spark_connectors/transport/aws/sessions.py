"""botocore sessions: profiles, regions and the chain that finds and renews credentials."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
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
from spark_connectors.transport.aws.refusals import code_of, is_passing

_ROLE_SESSION = "queuegate-spark"
_REGION_OF_GATEWAYS = "us-east-1"
NO_CREDENTIALS = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (any values do"
    " for a gateway that only wants some to be there), or name a profile or a role"
)


class Keys(Protocol):
    """Credentials of one moment."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


class Credentials(Protocol):
    """Credentials that botocore renews when they are about to expire."""

    def get_frozen_credentials(self) -> Keys: ...


class Session(Protocol):
    """What we use of a botocore session."""

    @property
    def full_config(self) -> dict[str, Any]: ...
    def get_scoped_config(self) -> dict[str, Any]: ...
    def get_config_variable(self, name: str) -> Any: ...
    def set_config_variable(self, name: str, value: str) -> None: ...
    def get_credentials(self) -> Credentials | None: ...
    def create_client(self, service: str, **settings: Any) -> Any: ...


class _AssumedRole:
    """A credential provider in the sense of botocore: a role, by way of the chain as it was."""

    METHOD = "assume-role"

    def __init__(
        self,
        source: Callable[[], Credentials | None],
        create_client: Callable[..., Any],
        connection: Connection,
    ) -> None:
        self._source = source
        self._create_client = create_client
        self._connection = connection

    def load(self) -> Credentials | None:
        """Credentials that call STS when they are first read; None without any to call it with."""
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
        credentials: Credentials = DeferredRefreshableCredentials(
            fetcher.fetch_credentials, self.METHOD
        )
        return credentials


def open_session(connection: Connection) -> Session:
    """A session with the connection's profile, region and credentials. Nothing is asked for yet.

    Raises ConnectorError for a profile that there is not, or a broken configuration file.
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
    opened: Session = session
    return opened


def _assume_role(session: Any, connection: Connection) -> None:
    source = session.get_component("credential_provider").load_credentials
    if connection.static is not None:
        source = functools.partial(_static_credentials, connection.static)
    sts = functools.partial(_create_sts, session)
    role = _AssumedRole(source, sts, connection)
    session.register_component("credential_provider", CredentialResolver([role]))


def _static_credentials(static: StaticCredentials) -> Credentials:
    fixed: Credentials = FixedCredentials(
        static.access_key_id, static.secret_access_key, static.session_token
    )
    return fixed


def _create_sts(session: Session, service: str, **settings: Any) -> Any:
    region = session.get_config_variable("region") or _REGION_OF_GATEWAYS
    return session.create_client(service, region_name=region, **settings)


def settle_region(session: Session, *, may_default: bool) -> None:
    """Give the session a region if it has none: a gateway takes any, and us-east-1 stands for none.

    Raises ConnectorError when it needs one and ``may_default`` is false.
    """
    if not session.get_config_variable("region"):
        if not may_default:
            raise ConnectorError("no region is known for AWS: give one, or set AWS_DEFAULT_REGION")
        session.set_config_variable("region", _REGION_OF_GATEWAYS)


class KeySource:
    """The credentials of a session, renewed when they are about to expire."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._credentials: Credentials | None = None
        self._lock = threading.Lock()

    def now(self) -> Keys:
        """The keys to sign with now.

        Raises ConnectorError when there are none, NotNow when they cannot be had at present, and
        Refused when STS refuses the role.
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
            # RuntimeError is what botocore raises when renewed credentials are as old as before.
            raise NotNow(f"credentials cannot be had at present: {error}") from error
        if "\n" in keys.access_key or "\n" in (keys.token or ""):
            raise ConnectorError("the AWS credentials that were found hold a line break")
        return keys

    def _find(self) -> Credentials:
        with self._lock:
            self._credentials = self._credentials or self._session.get_credentials()
        if self._credentials is None:
            raise ConnectorError(NO_CREDENTIALS)
        return self._credentials


def make_client(session: Session, keys: KeySource, service: str, **settings: Any) -> Any:
    """A botocore client. Raises what ``keys`` raises, and ConnectorError for settings of the
    environment that botocore cannot use, such as a region that is none."""
    # botocore would look for credentials now, and its errors would be nobody's.
    keys.now()
    try:
        return session.create_client(service, **settings)
    except (BotoCoreError, ValueError) as error:
        raise ConnectorError(f"{service.upper()} cannot be called: {error}") from error
