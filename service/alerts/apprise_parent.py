"""Messages through apprise, each sent by a child process.

apprise speaks to about 170 services, blocks as long as it likes, follows redirects and logs addresses that
hold secrets. A child process is ended when its time is up and looks names up under our rules
(`apprise_child`); of what it prints one word is read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

START_S = 20.0
"""What starting Python and loading apprise may take on a busy machine, on top of the time for the message."""
CURE = "pip install 'firstfault[notify]'"
WORDS = {
    "sent": "",
    "refused": "the service did not take it",
    "address": "apprise knows no service for this address",
    "private": "the address is not public; a channel inside needs allow_private = true",
    "redirect": "the service answered with a redirect, which is not followed",
}
"""What a child says, and what it means."""


def notify(url: str, title: str, text: str, *, timeout_s: float, allow_private: bool) -> str:
    """Send one message; why it was not taken, empty if it was."""
    if find_spec("apprise") is None:
        return f"apprise is not installed: {CURE}"
    # by standard input: what stands on a command line or in the environment others can read
    given = {"url": url, "title": title, "text": text, "allow_private": allow_private, "timeout_s": timeout_s}
    command = [sys.executable, "-m", "service.alerts.apprise_child"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(given).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=START_S + timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {timeout_s:g} s"
    said = done.stdout.decode(errors="replace").strip()
    return WORDS.get(said, "apprise ended without a word")
