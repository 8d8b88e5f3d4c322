"""Settings that can be, and all the same will not work or not be safe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ingest.errors import UnreadableInput

from ..config import Settings
from .endpoint import protocol_of
from .finding import Finding, fail, warn
from .serving import review_serving

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def review(settings: Settings) -> Iterator[Finding]:
    """What a look at the settings alone shows; nothing where all is well."""
    yield from review_serving(settings.serve)
    client = settings.kafka.client
    yield from _names(client)
    protocol = protocol_of(client)
    if protocol not in _PROTOCOLS:
        told = f"kafka.client.security_protocol must be one of {', '.join(_PROTOCOLS)}, got {protocol!r}"
        yield fail("settings", told, "correct it")
    yield from _files(client)
    if protocol.startswith("SASL"):
        yield from _account(client, protocol)
    elif any(name in client for name in ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password")):
        told = f"an account is given and not used with kafka.client.security_protocol = {protocol!r}"
        yield warn("settings", told, "set it to SASL_SSL, or leave the account out")


def _names(client: Mapping[str, object]) -> Iterator[Finding]:
    from ingest.kafka_clients import check_settings

    try:
        check_settings(client)
    except UnreadableInput as error:
        yield fail("settings", str(error), "correct the name")


def _files(client: Mapping[str, object]) -> Iterator[Finding]:
    for name in _FILES:
        given = client.get(name)
        if not given:
            continue
        try:
            Path(str(given)).open("rb").close()
        except OSError as error:
            told = f"kafka.client.{name}: {given}: {error.strerror}"
            yield fail("settings", told, "correct the path, or let this account read it")


def _account(client: Mapping[str, object], protocol: str) -> Iterator[Finding]:
    mechanism = client.get("sasl_mechanism")
    if not mechanism:
        yield fail("settings", f"kafka.client.sasl_mechanism is missing for {protocol}", "set it")
        return
    lacking = [name for name in ("username", "password") if not client.get(f"sasl_plain_{name}")]
    if mechanism in _BY_PASSWORD and lacking:
        variables = " and ".join(f"FIRSTFAULT_KAFKA_{name.upper()}" for name in lacking)
        yield fail("settings", f"{mechanism} needs {' and '.join(lacking)}", f"set {variables}")
    if mechanism == "PLAIN" and protocol == "SASL_PLAINTEXT":
        told = "the password goes to the broker in the clear: PLAIN without TLS"
        yield warn("settings", told, "set kafka.client.security_protocol to SASL_SSL")
