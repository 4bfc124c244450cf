"""A store below a prefix of an S3 bucket, or of a service that speaks S3 well enough."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

from spark_connectors.spool.stores import (
    HIDDEN,
    Missing,
    StoreAccess,
    StoreFailed,
    checked_name,
    checked_prefix,
)

_TRIES = 8  # of one write that others collide with, and of each call by boto3
_LONGEST_PAUSE_SECONDS = 2.0
_WRITER = "queuegate-writer"
_CONFLICTS = frozenset({"ConditionalRequestConflict", "409"})
_REFUSALS = frozenset({"PreconditionFailed", "412"})
_ABSENCES = frozenset({"NoSuchKey", "404"})
_BEYOND = frozenset({"InvalidRange", "416"})

_proven: set[tuple[str, str]] = set()
_proving = threading.Lock()


class S3Store:
    """Objects that are written with ``If-None-Match: *``.

    Services that ignore it replace the object instead of refusing; so each process tries it with
    two writes of an object of its own before its first write to a bucket. Reading needs no
    permission to write.
    """

    def __init__(self, bucket: str, prefix: str, access: StoreAccess) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise StoreFailed(f"a spool on S3 needs boto3: {error}") from error

        self._bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        self._place = f"s3://{bucket}/{prefix}"
        with self._failing(""):
            session = boto3.Session(region_name=access.region, profile_name=access.profile)
            config = Config(retries={"mode": "standard", "total_max_attempts": _TRIES})
            self._client: Any = session.client(
                "s3", endpoint_url=access.endpoint_url, config=config
            )

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        key = self._base + checked_name(name)
        content = bytes(data)
        with self._failing(name):
            self._prove_conditional_writes()
            return self._put(key, content)

    def get(self, name: str) -> bytes:
        return self.part(name, 0)

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        from botocore.exceptions import ClientError

        key = self._base + checked_name(name)
        with self._failing(name):
            try:
                return self._read(key, start, stop)
            except ClientError as error:
                if _code(error) in _BEYOND:
                    return b""
                if _code(error) in _ABSENCES:
                    raise Missing(self._place, name) from None
                raise

    def _read(self, key: str, start: int, stop: int | None) -> bytes:
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        for _ in range(_TRIES - 1):
            # boto3 repeats the request itself, but not what breaks while the content comes.
            with contextlib.suppress(HTTPClientError, IncompleteReadError):
                return self._read_once(key, start, stop)
        return self._read_once(key, start, stop)

    def _read_once(self, key: str, start: int, stop: int | None) -> bytes:
        how = {"Range": _range(start, stop)} if start or stop is not None else {}
        answer = self._client.get_object(Bucket=self._bucket, Key=key, **how)
        with contextlib.closing(answer["Body"]) as body:
            content: bytes = body.read()
        # Some services answer with all of it.
        return content if "ContentRange" in answer else content[start:stop]

    def names(self, prefix: str) -> list[str]:
        return list(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        start = self._base + checked_prefix(prefix)
        pages = self._client.get_paginator("list_objects_v2")
        with self._failing(prefix):
            found = {
                item["Key"].removeprefix(self._base): item["Size"]
                for page in pages.paginate(Bucket=self._bucket, Prefix=start)
                for item in page.get("Contents", ())
            }
        return {name: found[name] for name in sorted(found) if not name.startswith(HIDDEN)}

    def remove(self, name: str) -> None:
        with self._failing(name):
            self._client.delete_object(Bucket=self._bucket, Key=self._base + checked_name(name))

    def _put(self, key: str, content: bytes) -> bool:
        writer = secrets.token_hex(8)
        for number in range(_TRIES):
            code = self._refusal_of_put(key, content, writer)
            if code is None:
                return True
            if code in _REFUSALS:
                # When the answer to our own write got lost, boto3 wrote again: it is about us.
                return self._writer_of(key) == writer
            # Another write of the same name is on its way: which of the two is not yet decided.
            time.sleep(random.uniform(0, min(0.05 * 2**number, _LONGEST_PAUSE_SECONDS)))
        raise StoreFailed(f"s3://{self._bucket}/{key}: others kept writing it at the same time")

    def _refusal_of_put(self, key: str, content: bytes, writer: str) -> str | None:
        from botocore.exceptions import ClientError

        try:
            self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=content,
                IfNoneMatch="*",
                Metadata={_WRITER: writer},
            )
        except ClientError as error:
            if _code(error) in _REFUSALS | _CONFLICTS:
                return _code(error)
            raise
        return None

    def _writer_of(self, key: str) -> str | None:
        from botocore.exceptions import ClientError

        try:
            head = self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if _code(error) in _ABSENCES:  # removed since
                return None
            raise
        found: str | None = head["Metadata"].get(_WRITER)
        return found

    def _prove_conditional_writes(self) -> None:
        where = (self._client.meta.endpoint_url, self._bucket)
        with _proving:
            if where in _proven:
                return
            key = f"{self._base}{HIDDEN}{secrets.token_hex(8)}"
            try:
                is_kept = self._put(key, b"first") and not self._put(key, b"second")
            finally:
                self._client.delete_object(Bucket=self._bucket, Key=key)
            if not is_kept:
                raise StoreFailed(
                    f"{self._place}: this service ignores If-None-Match on writes, without which "
                    "two drivers would replace each other's files; use another service, or a "
                    "directory"
                )
            _proven.add(where)

    @contextlib.contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StoreFailed(f"{self._place} {name}: {error}") from error


def _range(start: int, stop: int | None) -> str:
    if start < 0:
        return f"bytes={start}"
    return f"bytes={start}-" + ("" if stop is None else str(stop - 1))


def _code(error: Any) -> str:
    code: str = error.response.get("Error", {}).get("Code", "")
    return code
