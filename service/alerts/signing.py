"""Signatures of webhooks, as the Standard Webhooks specification has them (version 1).

The signature is HMAC-SHA256 over ``id.timestamp.body``, base64, behind ``v1,``; one for each key, with spaces
between, so that a receiver that knows only the old or only the new one of two accepts the message.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence


def signed_headers(message_id: str, at_s: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """The three headers of a signed message.

    >>> signed_headers("msg_1", 1764470000, b"{}", [b"k" * 24])["webhook-signature"]
    'v1,YodTJQna1e7FouGLycQndX/dyzMh3Q0Knc75x/y1ZRw='
    """
    signed = f"{message_id}.{at_s}.".encode() + body
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(one).decode()}" for one in digests),
    }
