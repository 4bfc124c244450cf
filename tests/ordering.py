"""A random order of tests, drawn from a seed: folders, modules and tests among their siblings."""

from __future__ import annotations

import hashlib


def place(seed: int, test_id: str) -> tuple[bytes, ...]:
    """Sort key of a test. It depends on nothing but its arguments: each worker collects in
    the same order, and a part of the tests keeps the order that it has among all of them.

    The tests of a module, and the modules of a folder, stay together, as they share gateways.
    """
    path, _, name = test_id.partition("::")
    parts = [*path.split("/"), name]
    prefixes = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return tuple(hashlib.blake2b(f"{seed} {one}".encode()).digest() for one in prefixes)
