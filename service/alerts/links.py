"""Where the links of a message lead."""

from __future__ import annotations

from ..serve_config import ServeConfig
from .config import AlertsConfig


def link_base(alerts: AlertsConfig, serve: ServeConfig) -> str:
    """The address of the dashboard, without a slash at its end.

    >>> link_base(AlertsConfig(), ServeConfig(host="::1"))
    'http://[::1]:8000'
    """
    if alerts.public_url:
        return alerts.public_url.rstrip("/")
    host = f"[{serve.host}]" if ":" in serve.host else serve.host
    return f"http://{host}:{serve.port}"
