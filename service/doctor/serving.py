"""What the settings say of who can reach the service, and how."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ..errors import ConfigError
from ..serve_config import ServeConfig
from ..tls_files import Certificate
from .finding import Finding, fail, warn

_WIDE_BITS = 8
"""A network of proxies whose prefix is shorter holds millions of addresses."""


def review_serving(serve: ServeConfig) -> Iterator[Finding]:
    """What a look at these settings shows; nothing where all is well."""
    if serve.tls_cert:
        try:
            Certificate(path=serve.tls_cert, key=serve.tls_key).check()
        except ConfigError as error:
            yield fail("settings", str(error), "correct the paths, or let this account read the files")
    elif not _is_loopback(serve.host):
        told = f"serve.host is {serve.host} without TLS: tokens go over the network in the clear"
        yield warn("settings", told, "set serve.tls_cert, or listen on 127.0.0.1 behind a proxy")
    for one in serve.trusted_proxies:
        if ipaddress.ip_network(one).prefixlen < _WIDE_BITS:
            told = f"serve.trusted_proxies believes {one}: whoever is in it can say who it is"
            yield warn("settings", told, "name the proxy alone")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
