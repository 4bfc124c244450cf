"""Signs what SNS delivers, with one key for all processes on a database.

The key is made when something is signed first, and kept in the database; an operator may supply one
instead. Signing is loaded then, too: a gateway that signs nothing pays for none of it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from queuegate.gateway.operations.topics.private_keys import load_private_key, make_key
from queuegate.protocol import sns_signatures
from queuegate.storage.topics import signing_keys
from queuegate.storage.topics.signing_keys import SigningKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from queuegate.storage.database import Database

_REMEMBERED = 1024
# The work is done outside of Python's lock, in 0.4 ms: two threads sign 5,000 texts a second.
_THREADS = 2

_Item = tuple[str, bytes]


class Signer:
    """The key of this database, and what was signed with it lately.

    Belongs to one event loop, on which alone its methods may be called.
    """

    def __init__(
        self,
        database: Database,
        *,
        region: str = "us-east-1",
        supplied: SigningKey | None = None,
    ) -> None:
        """`region` goes into the certificate of a new key; `supplied` comes from `key_from_pem` and
        signs instead of the stored key."""
        self._database = database
        self._region = region
        self._supplied = supplied
        self._loading: asyncio.Task[None] | None = None
        self._current: SigningKey | None = None
        self._private_key: RSAPrivateKey | None = None
        self._certificates: dict[str, str] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._signed: OrderedDict[_Item, str] = OrderedDict()
        self._being_signed: dict[_Item, asyncio.Future[str]] = {}

    async def ready(self) -> None:
        """Load the key, or make one; at once when that was done before.

        Callers at the same time share one load. `Unavailable` when the database is away; the next
        call tries again.
        """
        if self._private_key is not None:
            return
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(_look_at)
        # A caller who goes away must not take the key from the others.
        await asyncio.shield(self._loading)

    @property
    def loaded_fingerprint(self) -> str | None:
        """The fingerprint, or None while the signer is not ready."""
        return self._current.fingerprint if self._current is not None else None

    @property
    def fingerprint(self) -> str:
        """32 hex digits of the certificate, once the signer is ready."""
        return self._ready_key().fingerprint

    @property
    def certificate_pem(self) -> str:
        """The certificate in PEM, once the signer is ready."""
        return self._ready_key().certificate_pem

    async def certificate(self, fingerprint: str) -> str | None:
        """The certificate of a key that signs or did so before; None when there is no such key."""
        if fingerprint not in self._certificates:
            async with self._database.transaction() as tx:
                self._keep_certificates(await signing_keys.stored(tx))
        return self._certificates.get(fingerprint)

    def sign(self, version: str, data: bytes) -> str:
        """The signature in base64, once the signer is ready: 0.4 ms of the event loop's time, next
        to none for what was signed lately. Version "1" is SHA-1, "2" SHA-256."""
        key = _item(version, data)
        found = self._remembered(key)
        if found is None:
            found = sns_signatures.sign(self._ready_private_key(), version, data)
            self._remember(key, found)
        return found

    async def sign_many(self, items: Sequence[_Item]) -> list[str]:
        """The signatures of (version, data), in order, made beside the event loop.

        Makes the signer ready first, with `Unavailable` as there. What another call is just signing
        is waited for, not signed again.
        """
        await self.ready()
        keys = [_item(*item) for item in items]
        found: dict[_Item, str] = {}
        fresh: dict[_Item, tuple[str, bytes]] = {}
        for key, item in zip(keys, items, strict=True):
            signature = self._remembered(key)
            if signature is not None:
                found[key] = signature
            elif key not in self._being_signed:
                fresh[key] = item
        self._begin(fresh)
        waited = {key: self._being_signed[key] for key in keys if key not in found}
        if waited:
            # Unlike gather, this cancels none of them with us: others may wait, too.
            await asyncio.wait(waited.values())
            found |= {key: future.result() for key, future in waited.items()}
        return [found[key] for key in keys]

    async def close(self) -> None:
        """Let go of the threads; nothing is signed from now on."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    async def _load(self) -> None:
        keys = await self._all_keys()
        current = self._supplied or signing_keys.private_key_of(keys)
        assert current is not None
        assert current.private_key_pem is not None
        text = current.private_key_pem
        private_key = await asyncio.get_running_loop().run_in_executor(
            self._pool(), load_private_key, text.encode("ascii")
        )
        self._keep_certificates(keys)
        self._current, self._private_key = current, private_key

    async def _all_keys(self) -> list[SigningKey]:
        """Every key, the one that will sign among them."""
        async with self._database.transaction() as tx:
            if self._supplied is not None:
                return await signing_keys.remember(tx, self._supplied)
            keys = await signing_keys.stored(tx)
        if signing_keys.private_key_of(keys) is not None:
            return keys
        # Takes up to a third of a second, so outside of any transaction.
        made = await asyncio.get_running_loop().run_in_executor(
            self._pool(), make_key, self._region
        )
        async with self._database.transaction() as tx:
            return await signing_keys.agree_on(tx, made)

    def _begin(self, fresh: dict[_Item, tuple[str, bytes]]) -> None:
        """Sign these, a share in each thread: handing work over costs a tenth of a signature."""
        keys = list(fresh)
        loop = asyncio.get_running_loop()
        for share in [keys[thread::_THREADS] for thread in range(_THREADS)]:
            if not share:
                continue
            for key in share:
                self._being_signed[key] = loop.create_future()
            items = [fresh[key] for key in share]
            work = loop.run_in_executor(self._pool(), _sign_all, self._ready_private_key(), items)
            work.add_done_callback(partial(self._signed_share, share))

    def _signed_share(self, share: list[_Item], work: asyncio.Future[list[str]]) -> None:
        """Tell everybody who waits for one of these."""
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        for place, key in enumerate(share):
            future = self._being_signed.pop(key)
            if error is None:
                signature = work.result()[place]
                self._remember(key, signature)
                future.set_result(signature)
            elif isinstance(error, asyncio.CancelledError):
                future.cancel()
            else:
                future.set_exception(error)

    def _remembered(self, key: _Item) -> str | None:
        found = self._signed.get(key)
        if found is not None:
            self._signed.move_to_end(key)
        return found

    def _remember(self, key: _Item, signature: str) -> None:
        self._signed[key] = signature
        if len(self._signed) > _REMEMBERED:
            self._signed.popitem(last=False)

    def _keep_certificates(self, keys: Sequence[SigningKey]) -> None:
        self._certificates = {key.fingerprint: key.certificate_pem for key in keys}

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "sign")
        return self._threads

    def _ready_key(self) -> SigningKey:
        if self._current is None:
            raise RuntimeError("the signer is not ready: await ready() first")
        return self._current

    def _ready_private_key(self) -> RSAPrivateKey:
        if self._private_key is None:
            raise RuntimeError("the signer is not ready: await ready() first")
        return self._private_key


def _sign_all(private_key: RSAPrivateKey, items: list[tuple[str, bytes]]) -> list[str]:
    return [sns_signatures.sign(private_key, *item) for item in items]


def _item(version: str, data: bytes) -> _Item:
    """What a signature is remembered under: a message may be long."""
    return version, sha256(data).digest()


def _look_at(loading: asyncio.Task[None]) -> None:
    """A load that failed after its callers had gone is nobody's news."""
    if not loading.cancelled():
        loading.exception()
