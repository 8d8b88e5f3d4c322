"""The files that TLS needs, looked at before anything begins; free of web libraries."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from .errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Files that TLS needs; ``key`` is empty where it is in the same file."""

    path: str
    key: str = ""

    def check(self) -> None:
        """Load them once.

        Raises:
            ConfigError: missing, no certificate, or a key that is not its own.
        """
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.path, self.key or None, password="")
        except (OSError, ssl.SSLError) as error:
            where = f"{self.path}{f' and {self.key}' if self.key else ''}"
            reason = error.strerror or str(error)
            raise ConfigError(f"serve.tls_cert and serve.tls_key: {where}: {reason}") from error
