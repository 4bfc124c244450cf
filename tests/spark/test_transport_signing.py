"""Our signatures are botocore's, for any request."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import quote, urlencode

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.transport.aws.signed_requests import RequestSigner
from spark_connectors.transport.http.http_connections import parse_endpoint

PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)
NAMES = st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True)
PATHS = st.sampled_from(["", "/", "/sqs", "/a b/ü", "/a%20b/", "/~x/_-.z"])
QUERIES = st.dictionaries(NAMES, st.text(max_size=20)).map(
    lambda asked: urlencode(sorted(asked.items()), quote_via=quote)
)
MOMENTS = st.datetimes(datetime.datetime(2015, 1, 1), datetime.datetime(2040, 1, 1))  # noqa: DTZ001
KEYS = st.builds(
    Credentials, PRINTABLE.filter(lambda text: "/" not in text), PRINTABLE, st.none() | PRINTABLE
)
SIGNERS = {(s, r): RequestSigner(s, r) for s in ("sqs", "sns") for r in ("us-east-1", "eu-west-1")}


@given(
    signer=st.sampled_from(list(SIGNERS)),
    keys=KEYS,
    host=NAMES,
    target=st.tuples(st.sampled_from(["GET", "POST"]), PATHS, QUERIES),
    headers=st.dictionaries(st.sampled_from(["content-type", "x-amz-target"]), PRINTABLE),
    body=st.binary(max_size=200),
    moment=MOMENTS,
)
def test_a_signature_is_botocores(
    signer: tuple[str, str],
    keys: Any,
    host: str,
    target: tuple[str, str, str],
    headers: dict[str, str],
    body: bytes,
    moment: datetime.datetime,
) -> None:
    method, path, query = target
    endpoint = parse_endpoint(f"http://h{host}h:9324{path}")
    timestamp = moment.strftime(SIGV4_TIMESTAMP)
    own = {**headers, "host": endpoint.authority, "x-amz-date": timestamp}
    if keys.token:
        own["x-amz-security-token"] = keys.token
    ours = SIGNERS[signer].authorization(
        keys.get_frozen_credentials(),
        method,
        f"{endpoint.path}?{query}" if query else endpoint.path,
        headers=sorted(own.items()),
        body=body,
        timestamp=timestamp,
    )
    request = AWSRequest(method, f"{endpoint.url}?{query}", {**own}, body)
    assert ours == _of_botocore(SigV4Auth(keys, *signer), request, timestamp)


def _of_botocore(auth: Any, request: Any, timestamp: str) -> str:
    """Sign as add_auth does, at a given time."""
    request.context["timestamp"] = timestamp
    text = auth.string_to_sign(request, auth.canonical_request(request))
    auth._inject_signature_to_request(request, auth.signature(text, request))
    header: str = request.headers["Authorization"]
    return header
