"""One address of Kafka, from its name to the account: DNS, TCP, TLS, Kafka itself, SASL.

Each step needs the one before; the first that fails ends them, and says what would cure it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from .finding import Finding, Wrong, fail, ok, warn
from .wire import NOT_WITH_SASL, SASL_HANDSHAKE, UNSUPPORTED_MECHANISM, NotKafka, Wire

RENEW_BEFORE_DAYS = 14
"""A certificate that ends sooner is told of: time to renew it by daylight."""
_TLS_ALERT = b"\x15\x03"
_OTHER_PORT = "or is this another port than Kafka's?"


def protocol_of(client: Mapping[str, object]) -> str:
    """The security protocol that the settings name."""
    return str(client.get("security_protocol", "PLAINTEXT"))


def look_at(address: str, client: Mapping[str, object], timeout_s: float) -> Iterator[Finding]:
    """What stands between this machine and a Kafka that takes its requests."""
    try:
        yield from _steps(address, client, timeout_s)
    except Wrong as wrong:
        yield wrong.finding


def _steps(address: str, client: Mapping[str, object], timeout_s: float) -> Iterator[Finding]:
    name, _, port = address.rpartition(":")
    host = name.strip("[]")
    yield ok("dns", f"{host} is {_resolved(host, int(port))}")
    protocol = protocol_of(client)
    with ExitStack() as stack:
        connection = stack.enter_context(_connected(address, host, int(port), timeout_s))
        yield ok("tcp", f"{address} takes connections")
        if protocol.endswith("SSL"):
            wrapped = stack.enter_context(_wrapped(connection, host, address, client))
            connection = wrapped
            yield _certificate(wrapped, address)
        wire = Wire(connection)
        known = _requests(wire, address, protocol)
        yield ok("kafka", f"{address} speaks Kafka")
        if protocol.startswith("SASL"):
            yield _signed_in(wire, address, host, client)
        elif SASL_HANDSHAKE in known:
            _refuse_hidden_sasl(wire, address)


def _resolved(host: str, port: int) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        cure = "correct kafka.bootstrap, or what this machine resolves names with"
        raise Wrong(fail("dns", f"{host}: {error.strerror or error}", cure)) from error
    return ", ".join(dict.fromkeys(str(place[0]) for *_, place in found))


def _connected(address: str, host: str, port: int, timeout_s: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=timeout_s)
    except TimeoutError as error:
        told = f"{address}: no answer within {timeout_s:g} s"
        raise Wrong(fail("tcp", told, "let a firewall or route between here and there pass it")) from error
    except ConnectionRefusedError as error:
        told = f"{address}: nothing listens there"
        raise Wrong(fail("tcp", told, "start the broker, or correct the port in kafka.bootstrap")) from error
    except OSError as error:
        told = f"{address}: {error.strerror or error}"
        raise Wrong(fail("tcp", told, "correct kafka.bootstrap, or the network of this machine")) from error


def _wrapped(
    connection: socket.socket, host: str, address: str, client: Mapping[str, object]
) -> ssl.SSLSocket:
    context = _context(client)
    try:
        return context.wrap_socket(connection, server_hostname=host.rstrip("."))
    except ssl.SSLCertVerificationError as error:
        told = f"{address}: its certificate is not accepted: {error.verify_message}"
        raise Wrong(fail("tls", told, _cure_of_certificate(error))) from error
    except (ssl.SSLEOFError, ConnectionError, TimeoutError) as error:
        told = f"{address}: no TLS there"
        cure = f"set kafka.client.security_protocol to PLAINTEXT or SASL_PLAINTEXT, {_OTHER_PORT}"
        raise Wrong(fail("tls", told, cure)) from error
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        cure = f"set kafka.client.security_protocol to that of this port, {_OTHER_PORT}"
        raise Wrong(fail("tls", f"{address}: no agreement: {reason}", cure)) from error


def _context(client: Mapping[str, object]) -> ssl.SSLContext:
    """The same as kafka-python makes of these settings."""
    given: Mapping[str, Any] = client
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(given.get("ssl_check_hostname", True))
    try:
        if given.get("ssl_cafile"):
            context.load_verify_locations(given["ssl_cafile"])
        else:
            context.load_default_certs()
        if given.get("ssl_certfile"):
            context.load_cert_chain(
                given["ssl_certfile"], given.get("ssl_keyfile"), given.get("ssl_password")
            )
        if given.get("ssl_crlfile"):
            context.load_verify_locations(given["ssl_crlfile"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, TypeError) as error:
        told = f"a file of kafka.client cannot be used: {error}"
        cure = "correct ssl_cafile, ssl_certfile, ssl_keyfile and ssl_password: PEM, readable to this account"
        raise Wrong(fail("tls", told, cure)) from error
    return context


def _cure_of_certificate(error: ssl.SSLCertVerificationError) -> str:
    words = error.verify_message.lower()
    if "mismatch" in words or "not valid for" in words:
        return "name the broker in kafka.bootstrap as its certificate does, or give it one for this name"
    if "expired" in words or "not yet valid" in words:
        return "renew the certificate of the broker, or set the clock of this machine"
    return "name the authority that signed it: kafka.client.ssl_cafile"


def _certificate(wrapped: ssl.SSLSocket, address: str) -> Finding:
    certificate = wrapped.getpeercert() or {}
    told = f"{address} speaks {wrapped.version()}"
    if "notAfter" not in certificate:
        return ok("tls", told)
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
    told = f"{told}, its certificate is good until {ends:%Y-%m-%d}"
    if (ends - datetime.now(UTC)).days < RENEW_BEFORE_DAYS:
        return warn("tls", told, "renew it")
    return ok("tls", told)


def _requests(wire: Wire, address: str, protocol: str) -> frozenset[int]:
    try:
        return frozenset(wire.api_versions())
    except NotKafka as error:
        if error.said.startswith(_TLS_ALERT):
            cure = "set kafka.client.security_protocol to SSL or SASL_SSL"
            raise Wrong(fail("kafka", f"{address} wants TLS", cure)) from error
        what = "is a web server" if error.said.startswith(b"HTTP") else "speaks another protocol"
        raise Wrong(fail("kafka", f"{address} {what}", "correct the port in kafka.bootstrap")) from error
    except TimeoutError as error:
        told = f"{address} takes the connection and says nothing"
        raise Wrong(fail("kafka", told, f"look at the log of the broker, {_OTHER_PORT}")) from error
    except (EOFError, OSError) as error:
        told = f"{address} ends the connection at the first request"
        wanted = "it may want a certificate of ours: kafka.client.ssl_certfile and ssl_keyfile"
        if not protocol.endswith("SSL"):
            wanted = "it may want TLS: kafka.client.security_protocol SSL or SASL_SSL"
        raise Wrong(fail("kafka", told, f"{wanted}, {_OTHER_PORT}")) from error


def _refuse_hidden_sasl(wire: Wire, address: str) -> None:
    """A port for accounts answers the first request of anybody, and no second one."""
    try:
        error, mechanisms = wire.handshake("PLAIN")
    except (EOFError, OSError, NotKafka):
        return
    if error != NOT_WITH_SASL:
        kind = "SASL_PLAINTEXT or SASL_SSL"
        cure = f"set kafka.client.security_protocol to {kind}, and sasl_mechanism to one of them"
        raise Wrong(fail("sasl", f"{address} wants an account: {', '.join(mechanisms)}", cure))


def _signed_in(wire: Wire, address: str, host: str, client: Mapping[str, object]) -> Finding:
    mechanism = str(client.get("sasl_mechanism") or "")
    try:
        error, mechanisms = wire.handshake(mechanism)
        if error == NOT_WITH_SASL:
            cure = "set kafka.client.security_protocol to PLAINTEXT or SSL"
            raise Wrong(fail("sasl", f"{address} has no accounts", cure))
        if error == UNSUPPORTED_MECHANISM or mechanism not in mechanisms:
            told = f"{address} does not know the mechanism {mechanism or 'of no name'}"
            cure = f"set kafka.client.sasl_mechanism to {' or '.join(mechanisms)}"
            raise Wrong(fail("sasl", told, cure))
        refusal = _exchange(wire, _mechanism(mechanism, host, client))
    except (EOFError, OSError, NotKafka) as error_:
        told = f"{address} ends the connection while we sign in"
        raise Wrong(fail("sasl", told, "look at the log of the broker")) from error_
    if refusal:
        cure = "correct FIRSTFAULT_KAFKA_USERNAME and FIRSTFAULT_KAFKA_PASSWORD, or make the account"
        raise Wrong(fail("sasl", f"{address} refuses the account: {refusal}", cure))
    return ok("sasl", f"{address} takes the account, by {mechanism}")


def _mechanism(name: str, host: str, client: Mapping[str, object]) -> Any:
    from kafka.net.sasl import get_sasl_mechanism

    try:
        return get_sasl_mechanism(name)(host=host, **client)
    except Exception as error:  # each mechanism raises what it likes of settings that it lacks
        told = f"{name} cannot begin: {error}"
        cure = "set FIRSTFAULT_KAFKA_USERNAME and FIRSTFAULT_KAFKA_PASSWORD, or what else it needs"
        raise Wrong(fail("sasl", told, cure)) from error


def _exchange(wire: Wire, mechanism: Any) -> str:
    """Why the server refuses; empty if it does not."""
    while not mechanism.is_done():
        error, message, token = wire.authenticate(mechanism.auth_bytes())
        if error:
            return message or f"error {error}"
        try:
            mechanism.receive(token)
        except Exception as wrong:  # what the server sent proves nothing: ValueError, KeyError, …
            return f"its proof is wrong: {wrong}"
    return "" if mechanism.is_authenticated() else "no reason given"
