"""Encryption of the public listener: its certificate, and connections until they are encrypted."""

import asyncio
import ssl
from typing import Any

from treeward.core.errors import InvalidArgument
from treeward.serve.protocol import Protocol
from treeward.serve.settings import Settings

_SECONDS_TO_SHUT = 1.0
"""How long the end of a connection waits for its caller to agree; an idle caller never does."""
_SPARE = 64
"""Connections above the limit that are encrypted, and then answered that there are too many."""


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """Return what encrypts the public listener; None: nothing does. Versions before TLS 1.2 are refused."""
    if not settings.tls_cert:
        return None
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        made.load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: "")  # never asks at the terminal
    except (OSError, ValueError) as error:
        rule = f"a certificate chain in PEM that fits the key {settings.tls_key}, which has no password"
        raise InvalidArgument("serve", "tls_cert", rule, f"{settings.tls_cert} ({error})") from error
    return made


class Handshake(asyncio.Protocol):
    """A connection until it is encrypted: then its protocol takes over.

    Connections count from the start, and have as long for their handshake as for their headers. uvicorn would notice a
    connection only after its handshake, so that silent ones could take all file descriptors.

    Parameters
    ----------
    protocol
        Answers what comes encrypted.
    context
        The certificate.
    settings
        The limits.
    pending
        The handshakes of the same listener that go on at present.
    """

    def __init__(
        self, protocol: Protocol, context: ssl.SSLContext, settings: Settings, pending: "set[Handshake]"
    ) -> None:
        self._protocol, self._context, self._settings, self._pending = protocol, context, settings, pending
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._early = bytearray()
        """What was decrypted before the protocol begins."""
        self._lost = False

    def connection_made(self, transport: Any) -> None:
        """Wait for the first bytes, unless there are far too many connections."""
        self._transport = transport
        if len(self._pending) + len(self._protocol.connections) >= self._settings.max_connections + _SPARE:
            transport.abort()
            return
        self._pending.add(self)
        self._timer = self._protocol.loop.call_later(self._settings.header_timeout, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Begin the handshake with the first bytes; all others are decrypted already, and for the protocol."""
        if self._task is None:
            self._transport.pause_reading()
            self._task = self._protocol.loop.create_task(self._shake(data))
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it ended early."""
        self._lost = True
        self._end()

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()

    def _end(self) -> None:
        self._pending.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    async def _shake(self, first: bytes) -> None:
        shaken = asyncio.ensure_future(self._encrypted())
        try:
            for _ in range(2):  # now the transport has the protocol of the handshake, and that knows the transport
                await asyncio.sleep(0)
            if not shaken.done():
                _hand_over(first, self._transport.get_protocol())
            encrypted = await shaken
        except (OSError, ssl.SSLError):  # also if it took too long
            self._transport.abort()
            return
        finally:
            self._end()
        if encrypted is None or self._lost:
            return
        encrypted.set_protocol(self._protocol)
        self._protocol.connection_made(encrypted)
        if self._early:
            self._protocol.data_received(bytes(self._early))

    async def _encrypted(self) -> Any:
        return await self._protocol.loop.start_tls(
            self._transport, self, self._context, server_side=True,
            ssl_handshake_timeout=self._settings.header_timeout, ssl_shutdown_timeout=_SECONDS_TO_SHUT,
        )  # fmt: skip


def _hand_over(data: bytes, protocol: Any) -> None:
    """Give a buffered protocol bytes that came before it did."""
    left = memoryview(data)
    while left:
        buffer = protocol.get_buffer(len(left))
        count = min(len(buffer), len(left))
        buffer[:count] = left[:count]
        protocol.buffer_updated(count)
        left = left[count:]
