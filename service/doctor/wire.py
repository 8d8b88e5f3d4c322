"""Just enough of Kafka's protocol to ask one server what it is, over a socket that is there already.

kafka-python has one message for every failure to begin, so the first words are spoken here. All of it is
big-endian; a request is its size, then number, version, an id to match the answer by, and who asks.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
UNSUPPORTED_MECHANISM, NOT_WITH_SASL = 33, 34
"""Errors of a handshake: another mechanism is wanted, or none at this port."""
_MAX_ANSWER_BYTES = 1 << 20
"""Answers to what is asked here have some hundred bytes; text of another protocol reads as a size of 1 GB."""
_CLIENT = "firstfault-doctor"


class NotKafka(Exception):
    """What answers speaks another protocol; ``said`` are its first bytes."""

    def __init__(self, said: bytes) -> None:
        super().__init__(repr(said))
        self.said = said


class Answer:
    """The bytes of an answer, read from the front."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def number(self, size: int) -> int:
        """A signed number of so many bytes."""
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self) -> str:
        """A text; a missing one is empty."""
        return self._take(max(0, self.number(2))).decode("utf-8", "replace")

    def octets(self) -> bytes:
        """Bytes behind their size."""
        return self._take(max(0, self.number(4)))

    def _take(self, size: int) -> bytes:
        part = self._payload[self._at : self._at + size]
        if len(part) < size:
            raise NotKafka(self._payload[:16])
        self._at += size
        return part


class Wire:
    """One connection to one server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._asked = 0

    def api_versions(self) -> Sequence[int]:
        """The numbers of the requests that the server knows.

        Raises:
            NotKafka: it answers with something else.
            EOFError: it ends the connection.
            OSError: it does not answer in time.
        """
        answer = self._ask(API_VERSIONS, 0, b"")
        answer.number(2)
        known = []
        for _ in range(answer.number(4)):
            known.append(answer.number(2))
            answer.number(4)
        return known

    def handshake(self, mechanism: str) -> tuple[int, Sequence[str]]:
        """(error, mechanisms of the server) when this one is asked for."""
        answer = self._ask(SASL_HANDSHAKE, 1, _text(mechanism))
        error = answer.number(2)
        return error, [answer.text() for _ in range(answer.number(4))]

    def authenticate(self, token: bytes) -> tuple[int, str, bytes]:
        """(error, its message, token of the server)."""
        answer = self._ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        return answer.number(2), answer.text(), answer.octets()

    def _ask(self, request: int, version: int, body: bytes) -> Answer:
        self._asked += 1
        head = struct.pack(">hhi", request, version, self._asked) + _text(_CLIENT)
        self._connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        first = self._read(4)
        (size,) = struct.unpack(">i", first)
        if not 4 <= size <= _MAX_ANSWER_BYTES:
            raise NotKafka(first)
        answer = Answer(self._read(size))
        if answer.number(4) != self._asked:
            raise NotKafka(first)
        return answer

    def _read(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._connection.recv(size - len(parts))
            if not part:
                raise EOFError("the connection was ended")
            parts += part
        return parts


def _text(text: str) -> bytes:
    octets = text.encode()
    return struct.pack(">h", len(octets)) + octets
