"""One HTTP request to an address that somebody else may decide on.

The name is looked up once, every address it has is checked, and the connection goes to one of those, with the
name in Host and in TLS: a name that changes its answer in between leads nowhere else. Redirects are not
followed. The answer is read up to a bound, and all of it must be over in time, however slowly it drips.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_ANSWER_BYTES = 16 << 10
"""Read of an answer: more than any receiver says of itself."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_METADATA = frozenset(
    ipaddress.ip_address(text) for text in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200")
)
"""Where clouds hand out the credentials of a machine: no receiver lives there, whatever a channel allows."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp = Callable[[str, int], list[str]]


class Refused(Exception):
    """No message may go to this address."""


class Unreachable(Exception):
    """The receiver did not answer in time or at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a receiver answered; of the body only the beginning."""

    status: int
    retry_after: str | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How a request may be made."""

    timeout_s: float
    allow_private: bool = False
    ca_file: str = ""


def look_up(host: str, port: int) -> list[str]:
    """The addresses of a name, as the system finds them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def check_destination(host: str, port: int, *, allow_private: bool, look_up: LookUp = look_up) -> list[str]:
    """The addresses of ``host``, all of them allowed.

    Raises:
        Refused: one of them is of this machine, of a private network, or none that a receiver can have.
        Unreachable: the name has no address.
    """
    try:
        found = look_up(host, port)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{host}: no address: {error}") from error
    for text in found:
        why = why_refused(text, allow_private=allow_private)
        if why:
            raise Refused(f"{host} leads to {text}, {why}")
    if not found:
        raise Unreachable(f"{host}: no address")
    return found


def why_refused(text: str, *, allow_private: bool) -> str:
    """Why nothing may be sent to an address; empty if it may.

    >>> [bool(why_refused(one, allow_private=False)) for one in ("1.1.1.1", "10.0.0.1", "::ffff:127.0.0.1")]
    [False, True, True]
    """
    address = _innermost(ipaddress.ip_address(text.partition("%")[0]))
    if address in _METADATA:
        return "where a cloud hands out credentials"
    if address.is_multicast or address.is_unspecified:
        return "which is no receiver's"
    if allow_private or address.is_global:
        return ""
    return "which is not public; a channel inside needs allow_private = true"


def post(
    url: str, body: bytes, headers: Mapping[str, str], limits: Limits, look_up: LookUp = look_up
) -> Reply:
    """Send ``body`` and give what was answered, whatever its status.

    Raises:
        Refused: the address is none that messages may go to.
        Unreachable: no connection, no trusted certificate, or no whole answer in time.
    """
    connection, host = _connection(url, limits, look_up)
    deadline = threading.Timer(limits.timeout_s, connection.cut)
    deadline.daemon = True
    deadline.start()
    try:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        head = response.read(MAX_ANSWER_BYTES)
        if connection.is_cut:
            raise Unreachable(_late(limits))
        return Reply(status=response.status, retry_after=response.headers.get("Retry-After"), body=head)
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        # ValueError and AttributeError: what a socket that was cut under its reader raises
        if isinstance(error, TimeoutError) or connection.is_cut:
            raise Unreachable(_late(limits)) from error
        raise Unreachable(f"{host}: {_words(error)}") from error
    finally:
        deadline.cancel()
        connection.close()


def reach(url: str, limits: Limits, look_up: LookUp = look_up) -> None:
    """Connect, with TLS where the address asks for it, and send nothing.

    Raises:
        Refused: the address is none that messages may go to.
        Unreachable: no connection, or no trusted certificate.
    """
    connection, host = _connection(url, limits, look_up)
    try:
        connection.connect()
    except OSError as error:
        raise Unreachable(f"{host}: {_words(error)}") from error
    finally:
        connection.close()


def _connection(url: str, limits: Limits, look_up: LookUp) -> tuple[_Pinned, str]:
    """A connection to be opened, to an address that was checked, and the name of its host."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = check_destination(parts.hostname, port, allow_private=limits.allow_private, look_up=look_up)
    connection = _Pinned(parts.hostname, port, addresses, _tls(limits) if parts.scheme == "https" else None)
    connection.timeout = limits.timeout_s
    return connection, parts.hostname


class _Pinned(http.client.HTTPConnection):
    """A connection to addresses that were checked, in the name of their host."""

    def __init__(self, host: str, port: int, addresses: list[str], tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self._addresses, self._tls = addresses, tls
        self._raw: socket.socket | None = None
        self.is_cut = False

    def connect(self) -> None:
        """Connect to the first address that takes it."""
        failure: OSError | None = None
        for address in self._addresses:
            try:
                self._raw = socket.create_connection((address, self.port), self.timeout)
                break
            except OSError as error:
                failure = error
            if self.is_cut:
                break
        if self._raw is None:
            raise failure or TimeoutError("timed out")
        self.sock = self._raw
        if self._tls is not None:
            self.sock = self._raw = self._tls.wrap_socket(
                self._raw, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock.do_handshake()

    def cut(self) -> None:
        """End it under whoever reads, from another thread."""
        self.is_cut = True
        if self._raw is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._raw, socket.SHUT_RDWR)


def _tls(limits: Limits) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=limits.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise Unreachable(f"ca_file {limits.ca_file}: {error}") from error


def _innermost(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address


def _late(limits: Limits) -> str:
    return f"no whole answer within {limits.timeout_s:g} s"


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
