"""The promises of every store, and the particulars of each."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_connectors.errors import ConnectorError
from spark_connectors.spool import stores
from spark_connectors.spool.stores import (
    BadName,
    LocalStore,
    Missing,
    Store,
    StoreAccess,
    StoreFailed,
    _own_prefix,
    open_store,
)
from tests.spark.bucket_server import Bucket, serve_bucket
from tests.spark.queues import client_of

_numbers = itertools.count()


@pytest.fixture(
    params=[
        "directory",
        "file URI",
        "memory",
        pytest.param("s3", marks=pytest.mark.moto),
        pytest.param("s3a at the root", marks=pytest.mark.moto),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return open_store(str(tmp_path / "new" / "spool"))
    if request.param == "file URI":
        return open_store(f"file://{tmp_path}")
    number = next(_numbers)
    if request.param == "memory":
        return open_store(f"memory:{os.getpid()}-{number}")
    endpoint = request.getfixturevalue("moto")
    client_of("s3", endpoint).create_bucket(Bucket=f"spool-{number}")
    path = f"s3://spool-{number}/a/b/" if request.param == "s3" else f"s3a://spool-{number}"
    return open_store(path, access=StoreAccess(endpoint))


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with serve_bucket() as served:
        yield served


def in_bucket(bucket: Bucket) -> Store:
    return open_store("s3://spool/q", access=StoreAccess(bucket.endpoint_url))


@pytest.mark.elsewhere
def test_a_file_can_be_read_after_it_was_put(store: Store) -> None:
    assert store.put_if_absent("one", b"content")
    assert store.put_if_absent("in/a/directory", memoryview(b"\x00\xff" * 100_000))
    assert store.put_if_absent("empty", b"")

    assert store.get("one") == b"content"
    assert store.get("in/a/directory") == b"\x00\xff" * 100_000
    assert store.get("empty") == b""


@pytest.mark.elsewhere
def test_a_part_is_what_a_slice_has(store: Store) -> None:
    content = bytes(range(256)) * 40
    store.put_if_absent("in/one", content)
    store.put_if_absent("empty", b"")

    for start, stop in [(0, 10), (100, 9000), (10_000, 20_000), (20_000, 20_001), (7, None)]:
        assert store.part("in/one", start, stop) == content[start:stop]
    for last in (-1, -300, -len(content), -len(content) - 1, -(1 << 20)):
        assert store.part("in/one", last) == content[last:]
    assert store.part("empty", -100) == store.part("empty", 3, 9) == b""
    with pytest.raises(Missing, match="two"):
        store.part("in/two", -100)


@pytest.mark.elsewhere
def test_sizes_are_those_of_the_names(store: Store) -> None:
    for name, size in (("b", 0), ("a/2", 70_000), ("a/10", 3)):
        store.put_if_absent(name, bytes(size))

    assert list(store.sizes("").items()) == [("a/10", 3), ("a/2", 70_000), ("b", 0)]
    assert store.sizes("a/2") == {"a/2": 70_000}
    assert store.sizes("c") == {}


@pytest.mark.elsewhere
def test_a_file_that_is_there_is_untouched(store: Store) -> None:
    content = b"same"

    assert store.put_if_absent("in/one", content)
    assert not store.put_if_absent("in/one", content)
    assert not store.put_if_absent("in/one", b"other")

    assert store.get("in/one") == b"same"
    assert store.names("") == ["in/one"]


@pytest.mark.elsewhere
def test_what_is_not_there_is_missing(store: Store) -> None:
    for _ in range(2):
        for name in ("one", "in/one", "in"):
            with pytest.raises(Missing, match=name):
                store.get(name)
        store.put_if_absent("in/other", b"")


@pytest.mark.elsewhere
def test_names_are_whole_sorted_and_begin_with_the_prefix(store: Store) -> None:
    assert store.names("") == store.names("a") == store.names("a/") == []
    for name in ("b", "a/2", "a/10", "ab", "a/c/x", "ä"):
        store.put_if_absent(name, b"")

    assert store.names("") == ["a/10", "a/2", "a/c/x", "ab", "b", "ä"]
    assert store.names("a") == ["a/10", "a/2", "a/c/x", "ab"]
    assert store.names("a/") == ["a/10", "a/2", "a/c/x"]
    assert store.names("a/1") == ["a/10"]
    assert store.names("b/") == store.names("x/y") == []


@pytest.mark.elsewhere
def test_a_removed_name_can_be_put_again(store: Store) -> None:
    store.put_if_absent("in/one", b"1")

    store.remove("in/one")
    store.remove("in/one")
    store.remove("never/there")

    assert store.names("") == []
    assert store.put_if_absent("in/one", b"2")
    assert store.get("in/one") == b"2"


@pytest.mark.parametrize(
    "name",
    ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", ".", "./a", "a\0b", ".tmp-1", "a/.tmp-1"],
)
def test_a_name_cannot_leave_the_store_or_hide(store: Store, name: str) -> None:
    with pytest.raises(BadName):
        store.put_if_absent(name, b"")
    with pytest.raises(BadName):
        store.get(name)
    with pytest.raises(BadName):
        store.remove(name)


@pytest.mark.parametrize("prefix", ["/etc/", "../", "a/../../b", "//"])
def test_a_prefix_cannot_leave_the_store(store: Store, prefix: str) -> None:
    with pytest.raises(BadName):
        store.names(prefix)


def test_every_store_of_a_place_has_its_files(tmp_path: Path) -> None:
    for path in (f"file:{tmp_path}/x", "memory:shared"):
        open_store(path).put_if_absent("one", b"content")

        assert open_store(path).get("one") == b"content"
    assert open_store("memory:another").names("") == []


@pytest.mark.parametrize("path", ["hdfs://nn/spool", "gs://b/p", "abfs://c@a/p", "dbfs:/spool"])
def test_other_schemes_say_what_is_supported(path: str) -> None:
    with pytest.raises(ConnectorError, match=r"not supported.* file:///dir.* s3://bucket/prefix"):
        open_store(path)


@pytest.mark.parametrize(
    "path", ["spool", "./spool", "", "file:spool", "file://host/dir", "s3:b/p"]
)
def test_a_path_that_means_no_place_is_refused(path: str) -> None:
    with pytest.raises(ConnectorError, match="spoolPath"):
        open_store(path)


def test_opening_a_directory_creates_nothing(tmp_path: Path) -> None:
    store = open_store(f"{tmp_path}/new")

    assert store.names("") == []
    assert not (tmp_path / "new").exists()


def test_only_temporary_files_of_dead_processes_here_are_removed(tmp_path: Path) -> None:
    """The clock of this machine may be hours ahead of the one that writes them."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    own = _own_prefix()
    others = [".tmp-1-earlier-version", f"{own.replace('.tmp-', '.tmp-another')}{ended.pid}-a"]
    alive = [f"{own}{os.getpid()}-a", "old"]
    for name in (*others, *alive, f"{own}{ended.pid}-a"):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (1, 1))

    store = open_store(str(tmp_path))

    assert sorted(os.listdir(tmp_path)) == sorted([*others, *alive])
    assert store.names("") == ["old"]


def test_the_process_mask_says_who_may_read_a_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        open_store(str(tmp_path)).put_if_absent("one", b"")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o640


def test_a_file_and_its_directories_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store = open_store(f"{tmp_path}/new/spool")

    assert store.put_if_absent("a/b/one", b"")

    directories = [str(tmp_path / d) for d in ("", "new", "new/spool", "new/spool/a")]
    [temporary] = [path for path in synced if ".tmp-" in path]
    assert set(directories) <= set(synced[: synced.index(temporary)])
    assert synced[-1] == f"{tmp_path}/new/spool/a/b"

    synced.clear()
    assert not store.put_if_absent("a/b/one", b"")
    assert synced[-1] == f"{tmp_path}/new/spool/a/b"


def test_a_lost_answer_of_link_is_our_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link_twice(source: Path, target: Path) -> None:
        """As NFS does when the answer got lost."""
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", link_twice)

    assert open_store(str(tmp_path)).put_if_absent("one", b"ours")
    assert not open_store(str(tmp_path)).put_if_absent("one", b"theirs")


@pytest.mark.parametrize("code", sorted(stores._NO_HARD_LINKS))
def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(StoreFailed, match="refuses hard links"):
        open_store(str(tmp_path)).put_if_absent("one", b"")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = open_store(str(tmp_path))
    store.put_if_absent("first", b"")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(StoreFailed, match="second: No space left"):
            store.put_if_absent("second", b"")

    assert os.listdir(tmp_path) == ["first"]


def test_a_file_in_the_place_of_a_directory_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreFailed, match="file"):
        LocalStore(str(tmp_path / "file")).put_if_absent("one", b"")


def test_more_names_than_a_page_are_all_listed(moto: str) -> None:
    client = client_of("s3", moto)
    client.create_bucket(Bucket="many")
    names = [f"{number:04}" for number in range(1001)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: client.put_object(Bucket="many", Key=f"p/{n}", Body=b""), names))

    assert open_store("s3://many/p", access=StoreAccess(moto)).names("") == names


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_the_environment_says_where_s3_is(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, bucket.endpoint_url)

    assert open_store("s3://spool/q").put_if_absent("one", b"1")
    assert list(bucket.objects) == ["/spool/q/one"]


@pytest.mark.elsewhere
def test_a_bucket_that_is_not_there_is_a_failure_not_a_missing_file(moto: str) -> None:
    store = open_store("s3://nowhere/q", access=StoreAccess(moto))

    for call in (
        lambda: store.get("one"),
        lambda: store.names(""),
        lambda: store.put_if_absent("one", b""),
    ):
        with pytest.raises(StoreFailed, match="NoSuchBucket"):
            call()


def test_an_unknown_profile_is_a_failure(bucket: Bucket) -> None:
    with pytest.raises(StoreFailed, match="no-such-profile"):
        open_store("s3://spool/q", access=StoreAccess(bucket.endpoint_url, None, "no-such-profile"))


def test_a_service_that_ignores_conditions_is_refused(bucket: Bucket) -> None:
    bucket.has_conditions = False
    store = in_bucket(bucket)

    for _ in range(2):
        with pytest.raises(StoreFailed, match="ignores If-None-Match"):
            store.put_if_absent("one", b"1")
    assert bucket.objects == {}


def test_reading_needs_no_permission_to_write(bucket: Bucket) -> None:
    in_bucket(bucket).put_if_absent("one", b"1")
    bucket.is_read_only = True

    assert in_bucket(bucket).get("one") == b"1"
    with pytest.raises(StoreFailed, match="AccessDenied"):
        in_bucket(bucket).put_if_absent("two", b"1")


def test_a_conflict_is_tried_again(bucket: Bucket) -> None:
    store = in_bucket(bucket)
    bucket.conflicts = 3

    assert store.put_if_absent("one", b"1")
    bucket.conflicts = 2
    assert not store.put_if_absent("one", b"2")
    assert store.get("one") == b"1"


def test_a_conflict_without_end_is_a_failure(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_LONGEST_PAUSE_SECONDS", 0.001)
    store = in_bucket(bucket)
    store.put_if_absent("one", b"1")
    bucket.conflicts = 100

    with pytest.raises(StoreFailed, match="at the same time"):
        store.put_if_absent("two", b"1")


def test_a_lost_answer_of_a_write_is_our_object(bucket: Bucket) -> None:
    store = in_bucket(bucket)
    store.put_if_absent("other", b"")
    bucket.lost_answers = 1

    assert store.put_if_absent("one", b"1")
    assert not store.put_if_absent("one", b"1")


def test_content_that_breaks_off_is_read_again(bucket: Bucket) -> None:
    store = in_bucket(bucket)
    store.put_if_absent("one", b"content" * 1000)
    bucket.cut_answers = 2

    assert store.get("one") == b"content" * 1000


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_part_is_asked_for_and_no_more(bucket: Bucket, has_ranges: bool) -> None:
    store = in_bucket(bucket)
    store.put_if_absent("one", b"content" * 1000)
    bucket.has_ranges, bucket.cut_answers, bucket.read_bytes = has_ranges, 1, 0

    assert store.part("one", 7, 21) == b"content" * 2
    assert store.part("one", -7) == b"content"
    assert bucket.read_bytes == (14 + 14 + 7 if has_ranges else 3 * 7000)


def test_a_service_that_is_away_is_a_failure() -> None:
    with serve_bucket() as bucket:
        store = in_bucket(bucket)
        with urllib.request.urlopen(
            urllib.request.Request(f"{bucket.endpoint_url}/x", method="DELETE")
        ) as answer:
            assert answer.status == 204
    with pytest.raises(StoreFailed, match="one: Could not connect"):
        store.get("one")
