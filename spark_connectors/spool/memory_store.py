"""A store in this process: for tests and for trying things out, not for a cluster."""

from __future__ import annotations

import threading

from spark_connectors.spool.stores import Missing, checked_name, checked_prefix

_stores: dict[str, dict[str, bytes]] = {}
_lock = threading.Lock()


class MemoryStore:
    """Every instance of one name has the same files, as long as the process lives."""

    def __init__(self, name: str) -> None:
        self._place = f"memory:{name}"
        with _lock:
            self._files = _stores.setdefault(name, {})

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        content = bytes(data)
        with _lock:
            if checked_name(name) in self._files:
                return False
            self._files[name] = content
            return True

    def get(self, name: str) -> bytes:
        with _lock:
            content = self._files.get(checked_name(name))
        if content is None:
            raise Missing(self._place, name)
        return content

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        return self.get(name)[start:stop]

    def names(self, prefix: str) -> list[str]:
        return list(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        checked_prefix(prefix)
        with _lock:
            files = sorted(self._files.items())
        return {name: len(content) for name, content in files if name.startswith(prefix)}

    def remove(self, name: str) -> None:
        with _lock:
            self._files.pop(checked_name(name), None)
