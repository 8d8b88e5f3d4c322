"""Text logs of any kind: bytes become clean lines, lines become records and events."""
