"""Tokens over HTTP: what is told of them, and what is not."""

from __future__ import annotations

from pathlib import Path

from service.access import create_token, revoke_token

from .api_builders import seeded


def test_tokens_are_told_without_what_opens_anything(tmp_path: Path) -> None:
    with seeded(tmp_path) as api:
        with api.store.database.write() as db:
            reader = create_token(db, "oncall", ("read", "write"), api.now() - 60.0)
            trainer = create_token(db, "trainer", ("ingest",), api.now(), lifetime_s=3600.0)
            revoke_token(db, trainer[:11], api.now())
        answer = api.client(token=reader).get("/v1/tokens")
        newest, oldest = answer.json()["items"]
        assert (newest["name"], newest["scopes"], newest["is_valid"]) == ("trainer", ["ingest"], False)
        assert (oldest["name"], oldest["is_valid"], oldest["expires_at"]) == ("oncall", True, None)
        assert oldest["last_used_at"] is not None
        assert reader[11:] not in answer.text
        assert trainer[11:] not in answer.text
        assert api.client(token=trainer).get("/v1/tokens").status_code == 401


def test_who_may_only_read_is_not_told_of_tokens(tmp_path: Path) -> None:
    with seeded(tmp_path) as api:
        with api.store.database.write() as db:
            reader = create_token(db, "screen", ("read",), api.now())
        assert api.client(token=reader).get("/v1/tokens").status_code == 403


def test_without_tokens_the_list_is_empty(tmp_path: Path) -> None:
    with seeded(tmp_path) as api:
        assert api.client().get("/v1/tokens").json() == {"items": [], "next": None}
