"""Signatures of SNS envelopes: the RSA key with its certificate, generated or supplied, and a cache
of signatures.

The cryptography package is imported at first use: few gateways sign in their first second.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from queuegate.gateway.operations.runtime.background_tasks import SharedLoads
from queuegate.protocol import sns_envelopes
from queuegate.storage.topics import stored_topics
from queuegate.storage.topics.stored_topics import SigningKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.x509 import Certificate

    from queuegate.storage.database import Database


_KEY_BITS = 2048
_VALID_DAYS = 20 * 365
_LONGEST_COMMON_NAME = 64


class NoRsaKey(Exception):
    """An unusable private key; the text says why."""


class NoCertificate(Exception):
    """An unusable certificate; the text says why."""


def make_key(region: str) -> SigningKey:
    """Generate a key with a self-signed certificate. Most verifiers use only the key. Those of the
    SDKs for Java and .NET also check the host name of SNS and the chain. They can accept this
    certificate from their trust store, but never an expired one; hence the names and the 20
    years."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa

    private_key = rsa.generate_private_key(65537, _KEY_BITS)
    hosts = [f"sns.{region}.amazonaws.com", "sns.amazonaws.com"]
    common = next(host for host in hosts if len(host) <= _LONGEST_COMMON_NAME)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])
    # Clocks differ: valid from yesterday on.
    begins = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, hosts)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    return _signing_key(certificate, private_key)


def key_from_pem(private_key: bytes, certificate: bytes) -> SigningKey:
    """Return a supplied key, with the first certificate of its file. Raises NoRsaKey and
    NoCertificate."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    loaded = load_private_key(private_key)
    try:
        found = x509.load_pem_x509_certificate(certificate)
        public_key = found.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise NoCertificate("this is not a certificate in PEM") from None
    if not isinstance(public_key, RSAPublicKey):
        raise NoCertificate("this is not the certificate of an RSA key")
    if public_key.public_numbers() != loaded.public_key().public_numbers():
        raise NoCertificate("this is the certificate of another key")
    return _signing_key(found, loaded)


def load_private_key(text: bytes) -> RSAPrivateKey:
    """Return the RSA key of a PEM file. Raises NoRsaKey."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        loaded = load_pem_private_key(text, password=None)
    except TypeError:
        raise NoRsaKey("this key is encrypted; only one without a password can be used") from None
    except (ValueError, UnsupportedAlgorithm):
        raise NoRsaKey("this is not a private key in PEM") from None
    if not isinstance(loaded, RSAPrivateKey):
        raise NoRsaKey("this is not an RSA key, and SNS signs with no other")
    return loaded


def _signing_key(certificate: Certificate, private_key: RSAPrivateKey) -> SigningKey:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text = private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    fingerprint = certificate.fingerprint(SHA256()).hex()[:32]
    return SigningKey(fingerprint, certificate.public_bytes(Encoding.PEM).decode(), text.decode())


_REMEMBERED = 1024
# Signing releases Python's lock and takes 0.4 ms: two threads sign 5,000 texts per second.
_THREADS = 2
_Item = tuple[str, bytes]


class EnvelopeSigner:
    """The signing key of this database, and recent signatures. Use it in one event loop only."""

    def __init__(
        self, database: Database, *, region: str = "us-east-1", supplied: SigningKey | None = None
    ) -> None:
        """`region` is for the certificate of a new key. `supplied` comes from `key_from_pem` and
        signs instead of the stored key."""
        self._database = database
        self._region = region
        self._supplied = supplied
        self._loads = SharedLoads()
        self._current: tuple[SigningKey, RSAPrivateKey] | None = None
        self._certificates: dict[str, str] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._signed: OrderedDict[_Item, str] = OrderedDict()
        self._being_signed: dict[_Item, asyncio.Future[str]] = {}

    async def ready(self) -> None:
        """Load the key, or generate one; return at once if that is done. Concurrent callers share
        one load. Raises Unavailable without the database; the next call tries again."""
        if self._current is None:
            await self._loads.once("key", self._load)

    @property
    def loaded_fingerprint(self) -> str | None:
        """Return the fingerprint; None: the signer is not ready."""
        return None if self._current is None else self._current[0].fingerprint

    @property
    def fingerprint(self) -> str:
        """Return 32 hex digits of the certificate, once the signer is ready."""
        return self._ready()[0].fingerprint

    @property
    def certificate_pem(self) -> str:
        """Return the certificate in PEM, once the signer is ready."""
        return self._ready()[0].certificate_pem

    async def certificate(self, fingerprint: str) -> str | None:
        """Return the certificate of a present or former key; None: there is no such key."""
        if fingerprint not in self._certificates:
            async with self._database.transaction() as tx:
                self._keep_certificates(await stored_topics.stored_signing_keys(tx))
        return self._certificates.get(fingerprint)

    def sign(self, version: str, data: bytes) -> str:
        """Return the signature in base64, once the signer is ready. Takes 0.4 ms of the event loop,
        or nearly nothing for a recent text. Version "1" is SHA-1, "2" SHA-256."""
        key = _item(version, data)
        found = self._remembered(key)
        if found is None:
            found = sns_envelopes.sign(self._ready()[1], version, data)
            self._remember(key, found)
        return found

    async def sign_many(self, items: Sequence[_Item]) -> list[str]:
        """Return the signatures of (version, data), in order, computed off the event loop. Makes
        the signer ready first, which raises Unavailable. Waits for signatures that another call is
        computing."""
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
            # Unlike gather, do not cancel them with the caller: others may wait for them.
            await asyncio.wait(waited.values())
            found |= {key: future.result() for key, future in waited.items()}
        return [found[key] for key in keys]

    async def close(self) -> None:
        """Stop the threads; nothing can be signed after this."""
        await self._loads.close()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    async def _load(self) -> None:
        keys = await self._all_keys()
        current = self._supplied or stored_topics.private_key_of(keys)
        assert current is not None
        assert current.private_key_pem is not None
        text = current.private_key_pem
        private_key = await asyncio.get_running_loop().run_in_executor(
            self._pool(), load_private_key, text.encode("ascii")
        )
        self._keep_certificates(keys)
        self._current = current, private_key

    async def _all_keys(self) -> list[SigningKey]:
        """Return every key, including the one that will sign."""
        async with self._database.transaction() as tx:
            if self._supplied is not None:
                return await stored_topics.remember_signing_key(tx, self._supplied)
            keys = await stored_topics.stored_signing_keys(tx)
        if stored_topics.private_key_of(keys) is not None:
            return keys
        # Takes up to 0.3 s, so outside of any transaction.
        made = await asyncio.get_running_loop().run_in_executor(
            self._pool(), make_key, self._region
        )
        async with self._database.transaction() as tx:
            return await stored_topics.agree_on_signing_key(tx, made)

    def _begin(self, fresh: dict[_Item, tuple[str, bytes]]) -> None:
        """Sign these, a share in each thread: submitting work costs a tenth of a signature."""
        keys = list(fresh)
        loop = asyncio.get_running_loop()
        for share in [keys[thread::_THREADS] for thread in range(_THREADS)]:
            if not share:
                continue
            for key in share:
                self._being_signed[key] = loop.create_future()
            items = [fresh[key] for key in share]
            work = loop.run_in_executor(self._pool(), _sign_all, self._ready()[1], items)
            work.add_done_callback(partial(self._signed_share, share))

    def _signed_share(self, share: list[_Item], work: asyncio.Future[list[str]]) -> None:
        """Resolve the futures of these signatures."""
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

    def _ready(self) -> tuple[SigningKey, RSAPrivateKey]:
        if self._current is None:
            raise RuntimeError("the signer is not ready: await ready() first")
        return self._current


def _sign_all(private_key: RSAPrivateKey, items: list[tuple[str, bytes]]) -> list[str]:
    return [sns_envelopes.sign(private_key, *item) for item in items]


def _item(version: str, data: bytes) -> _Item:
    """Return the cache key of a signature: a message may be long."""
    return version, sha256(data).digest()
