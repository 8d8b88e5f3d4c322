"""The child process that hands one message to apprise: `apprise_parent` starts it.

Names are looked up by Python, whoever asks, so the rule about addresses stands there: every address that a
library connects to was checked in the same breath. Redirects are switched off in `requests`, which apprise
uses throughout.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Any

from .target import why_refused

_seen: set[str] = set()
"""What was in the way."""


def main() -> int:
    """Read a message from standard input, send it, and say in a word what became of it."""
    given = json.load(sys.stdin)
    _end_after(float(given["timeout_s"]))
    _guard_names(allow_private=bool(given["allow_private"]))
    _stop_redirects()
    sys.stdout.write(_sent(given))
    sys.stdout.flush()
    os._exit(0)  # threads of a library may still wait for something


def _sent(given: dict[str, Any]) -> str:
    import apprise

    _silence(apprise)
    messenger = apprise.Apprise()
    if not messenger.add(given["url"]):
        return "address"
    # said to be text: what names hold would else be links, mentions and markup of the receiver's
    if messenger.notify(body=given["text"], title=given["title"], body_format=apprise.NotifyFormat.TEXT):
        return "sent"
    return next(iter(sorted(_seen)), "refused")


def _silence(library: Any) -> None:
    """What apprise logs holds addresses with their secrets."""
    library.logger.disabled = True


def _end_after(seconds: float) -> None:
    timer = threading.Timer(seconds + 15.0, os._exit, [1])  # loading the library is not the service's time
    timer.daemon = True
    timer.start()


def _guard_names(*, allow_private: bool) -> None:
    real = socket.getaddrinfo

    def guarded(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        for one in found:
            if why_refused(str(one[4][0]), allow_private=allow_private):
                _seen.add("private")
                raise OSError("not a public address")
        return found

    socket.getaddrinfo = guarded


def _stop_redirects() -> None:
    import requests

    real = requests.Session.request

    def direct(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["allow_redirects"] = False
        answer = real(self, *args, **kwargs)
        if answer.is_redirect:
            _seen.add("redirect")
        return answer

    requests.Session.request = direct  # type: ignore[method-assign]  # the one place that all of it goes through


if __name__ == "__main__":
    raise SystemExit(main())
