"""Signed requests to one service, and the botocore sessions with profile, region and keys."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import botocore.session
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.credentials import Credentials as FixedCredentials
from botocore.credentials import ReadOnlyCredentials as SigningKeys
from botocore.exceptions import BotoCoreError, ClientError

from spark_connectors.endpoints import (
    NO_CONTENT,
    OK,
    SKEWED,
    Connection,
    HttpAnswer,
    ServiceEndpoint,
    TransientFailure,
    code_of,
    is_passing,
    parse_endpoint,
)
from spark_connectors.errors import ConnectorError, NotNow, Refused
from spark_connectors.http_client import HttpConnectionPool

_ROLE_SESSION = "queuegate-spark"
_REGION_OF_GATEWAYS = "us-east-1"
NO_CREDENTIALS = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (any values do"
    " for a gateway that only wants some to be there), or name a profile or a role"
)


# Sessions and credentials of botocore, which has no types.
BotoSession = Any


def open_session(connection: Connection) -> BotoSession:
    """Open a session with the connection's profile, region and credentials. Makes no request.
    Raises ConnectorError for an unknown profile, or a broken configuration file."""
    session = botocore.session.Session(profile=connection.profile)
    try:
        session.get_scoped_config()
        if connection.region:
            session.set_config_variable("region", connection.region)
        if connection.role_arn:
            session._credentials = _assume_role(session, connection)
        elif connection.static is not None:
            session.set_credentials(
                connection.static.access_key_id,
                connection.static.secret_access_key,
                connection.static.session_token,
            )
    except BotoCoreError as error:
        raise ConnectorError(f"the AWS configuration cannot be used: {error}") from error
    return session


def _assume_role(session: Any, connection: Connection) -> Any:
    """Return credentials that call STS when they are first read, on top of the original chain."""
    static = connection.static

    def create_sts(service: str, **settings: Any) -> Any:
        region = session.get_config_variable("region") or _REGION_OF_GATEWAYS
        return session.create_client(service, region_name=region, **settings)

    @functools.cache
    def fetcher() -> Any:
        if static is not None:
            source = FixedCredentials(
                static.access_key_id, static.secret_access_key, static.session_token
            )
        else:
            source = session.get_component("credential_provider").load_credentials()
        if source is None:
            raise ConnectorError(NO_CREDENTIALS)
        name = {"RoleSessionName": connection.role_session_name or _ROLE_SESSION}
        return AssumeRoleCredentialFetcher(create_sts, source, connection.role_arn, extra_args=name)

    return DeferredRefreshableCredentials(lambda: fetcher().fetch_credentials(), "assume-role")


def settle_region(session: BotoSession, *, may_default: bool) -> None:
    """Set the session's region if it has none: a gateway accepts any, so us-east-1 is the default.
    Raises ConnectorError when it needs one and ``may_default`` is false."""
    if not session.get_config_variable("region"):
        if not may_default:
            raise ConnectorError("no region is known for AWS: give one, or set AWS_DEFAULT_REGION")
        session.set_config_variable("region", _REGION_OF_GATEWAYS)


class KeySource:
    """The credentials of a session, renewed when they are about to expire."""

    def __init__(self, session: BotoSession) -> None:
        self._session = session
        self._credentials: Any = None
        self._lock = threading.Lock()

    def now(self) -> SigningKeys:
        """Return the keys to sign with now. Raises ConnectorError when there are none, NotNow when
        they are unavailable at present, and Refused when STS refuses the role."""
        try:
            with self._lock:
                self._credentials = self._credentials or self._session.get_credentials()
            if self._credentials is None:
                raise ConnectorError(NO_CREDENTIALS)
            keys: SigningKeys = self._credentials.get_frozen_credentials()
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


def aws_endpoint(session: BotoSession, keys: KeySource, service: str) -> str:
    """Return AWS's endpoint of a service. Raises the errors of ``keys``, and ConnectorError for
    settings of the environment that botocore cannot use, such as an invalid region."""
    # botocore would look for credentials now, and raise its own errors.
    keys.now()
    try:
        url: str = session.create_client(service).meta.endpoint_url
    except (BotoCoreError, ValueError) as error:
        raise ConnectorError(f"{service.upper()} cannot be called: {error}") from error
    return url


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


def configured(connection: Connection, session: BotoSession) -> dict[str, ServiceEndpoint]:
    """Return the known endpoints by service; those missing are AWS's. Sources in botocore's order:
    the connection's own, the environment's, the profile's."""
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


_ALGORITHM = "AWS4-HMAC-SHA256"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8"), "sha256")


class RequestSigner:
    """Signs for one service and region; caches the key that is derived once a day."""

    def __init__(self, service: str, region: str) -> None:
        self._service = service
        self._region = region
        self._derived: tuple[str, str, bytes] = ("", "", b"")

    def authorization(
        self,
        keys: SigningKeys,
        method: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timestamp: str,
    ) -> str:
        """Return the Authorization header. ``target`` is path and query as sent, names of the query
        in order; ``headers`` are all those to sign, lower-case names in order, values without
        needless spaces; ``timestamp`` is that of X-Amz-Date, such as 20261121T223000Z."""
        day = timestamp[:8]
        path, _, query = target.partition("?")
        names = ";".join([name for name, _ in headers])
        lines = "".join([f"{name}:{value}\n" for name, value in headers])
        payload = hashlib.sha256(body).hexdigest()
        request = (
            f"{method}\n{quote(path, safe='/~')}\n{query}\n{lines}\n{names}\n{payload}".encode()
        )
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        digest = hashlib.sha256(request).hexdigest()
        signature = _hmac(
            self._key(keys.secret_key, day), f"{_ALGORITHM}\n{timestamp}\n{scope}\n{digest}"
        ).hex()
        return (
            f"{_ALGORITHM} Credential={keys.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )

    def _key(self, secret: str, day: str) -> bytes:
        # Read and replaced as a whole, so that threads with different keys do not mix them.
        known_secret, known_day, key = self._derived
        if known_secret != secret or known_day != day:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = _hmac(key, part)
            self._derived = (secret, day, key)
        return key


_TOLERATED_SKEW_SECONDS = 240
_MOST_QUOTED = 300

# Returns an error's code (empty: the status is all) and message from the body of a refusal; None
# for another body.
ErrorReader = Callable[[bytes], tuple[str, str] | None]


class SignedService:
    """Requests that are signed for one service with the present keys. They raise TransientFailure
    without an answer, the errors of KeySource.now, and ConnectorError for an untrusted
    certificate."""

    def __init__(
        self, name: str, session: BotoSession, endpoint: ServiceEndpoint, keys: KeySource
    ) -> None:
        self.endpoint = endpoint
        self._connections = HttpConnectionPool(
            endpoint, session.get_config_variable("ca_bundle"), "AWS_CA_BUNDLE"
        )
        self._signer = RequestSigner(name, session.get_config_variable("region"))
        self._keys = keys
        self._skew_seconds = 0.0

    def ask(self, method: str, target: str, *, timeout_seconds: float) -> HttpAnswer:
        """Return the answer, of any status, to a request without a body. ``target``: path and
        query, encoded, below the endpoint's path; names of the query in order."""
        target = self.endpoint.path.rstrip("/") + target
        lines = self._signed(self._keys.now(), method, target, {}, b"")
        return self._connections.ask(method, target, lines, b"", timeout_seconds=timeout_seconds)

    def call(
        self,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_seconds: float,
        reader: ErrorReader = lambda _: None,
        method: str = "POST",
        path: str = "",
    ) -> bytes:
        """Return the body of the answer to a call. ``headers``: lower-case names; ``path``: below
        the endpoint's. Raises Refused too."""
        keys = self._keys.now()
        target = self.endpoint.path.rstrip("/") + path if path else self.endpoint.path
        lines = self._signed(keys, method, target, headers, body)
        answer = self._connections.ask(method, target, lines, body, timeout_seconds=timeout_seconds)
        if OK <= answer.status <= NO_CONTENT:
            return answer.body
        raise self._verdict(answer, keys, reader)

    def close(self) -> None:
        """Close idle connections."""
        self._connections.close()

    def _signed(
        self, keys: SigningKeys, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> str:
        now = time.gmtime(time.time() + self._skew_seconds)
        timestamp = time.strftime("%Y%m%dT%H%M%SZ", now)
        signed = {**headers, "host": self.endpoint.authority, "x-amz-date": timestamp}
        if keys.token:
            signed["x-amz-security-token"] = keys.token
        authorization = self._signer.authorization(
            keys, method, target, headers=sorted(signed.items()), body=body, timestamp=timestamp
        )
        del signed["host"]
        lines = "".join([f"{name}: {value}\r\n" for name, value in signed.items()])
        return f"{lines}authorization: {authorization}\r\n"

    def _verdict(self, answer: HttpAnswer, keys: SigningKeys, reader: ErrorReader) -> Exception:
        try:
            found = reader(answer.body)
        except ValueError:
            found = None
        if found is None:
            text = answer.body[:_MOST_QUOTED].decode("utf-8", "replace")
            found = str(answer.status), f"HTTP {answer.status}: {text}"
        code = code_of(found[0]) or str(answer.status)
        message = found[1]
        # AWS repeats signed headers, tokens among them.
        for secret in (keys.secret_key, keys.token):
            if secret:
                message = message.replace(secret, "***")
        if is_passing(code, answer.status):
            return TransientFailure(f"{code}: {message}")
        if code in SKEWED and self._follows_clock(answer.headers.get("date")):
            return TransientFailure(f"{code}: our clock differs by {self._skew_seconds:.0f} s")
        return Refused(code, message)

    def _follows_clock(self, date: str | None) -> bool:
        """Adopt the server's clock for signing if it differs from ours. Returns True if it did."""
        try:
            skew = parsedate_to_datetime(date or "").timestamp() - time.time()
        except ValueError:
            return False
        if abs(skew - self._skew_seconds) < _TOLERATED_SKEW_SECONDS:
            return False
        self._skew_seconds = skew
        return True
