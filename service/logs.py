"""Log lines of long-running commands: one JSON object a line on standard error.

The sentence is fixed text; values are fields (``extra``), so that nothing in a run name can forge a
line. Talk of the Kafka client goes through the same formatter.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
"""What is no field of a line; ``color_message`` is the web server's sentence once more, for a terminal."""
_MAX_VALUE = 2000
"""Characters of one field: a whole rejected line in a log helps nobody."""


class JsonFormatter(logging.Formatter):
    """A record as ``{"time", "level", "logger", "message", …fields}`` on one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in line:
                line[name] = value if isinstance(value, int | bool | None) else str(value)[:_MAX_VALUE]
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def log_to(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send all log lines to ``stream`` (standard error by default), replacing earlier handlers."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # The client reports every reconnect attempt at INFO; outages are told by our own lines.
    logging.getLogger("kafka").setLevel(max(level, logging.WARNING))
    # A topic that is missing it reports ten times a second as an error; `/readyz` tells of it once.
    logging.getLogger("kafka.cluster").setLevel(logging.CRITICAL)
