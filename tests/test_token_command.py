"""`firstfault token`: made once, shown once, listed without it, revoked at once."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.access import TokenBook
from service.cli import app
from service.store import Store


def token(*arguments: str, data: Path) -> Result:
    return CliRunner().invoke(app, ["token", *arguments, "--data", str(data)])


def opens(data: Path, given: str) -> bool:
    store = Store(data, read_only=True)
    found = TokenBook(store.database).find(given) is not None
    store.close()
    return found


def test_a_token_alone_is_on_standard_output_and_opens_the_store(tmp_path: Path) -> None:
    made = token("create", "trainer", "--scope", "ingest", "--expires", "90d", data=tmp_path)
    assert made.exit_code == 0
    assert re.fullmatch(r"ff_[A-Za-z0-9_-]{43}\n", made.stdout)
    assert opens(tmp_path, made.stdout.strip())


def test_a_list_names_tokens_and_never_shows_one(tmp_path: Path) -> None:
    made = token(
        "create", "trainer", "--scope", "ingest", "--scope", "read", "--expires", "12h", data=tmp_path
    )
    listed = token("list", data=tmp_path)
    as_json = json.loads(token("list", "--json", data=tmp_path).stdout)
    assert made.stdout.strip() not in listed.stdout
    assert "trainer" in listed.stdout
    assert "never used" in listed.stdout
    assert (as_json["name"], as_json["scopes"], as_json["is_valid"]) == ("trainer", ["read", "ingest"], True)


def test_a_revoked_token_opens_nothing_and_stays_listed(tmp_path: Path) -> None:
    first = token("create", "one", data=tmp_path).stdout.strip()
    second = token("create", "two", data=tmp_path).stdout.strip()
    assert token("revoke", first[:11], data=tmp_path).exit_code == 0
    assert (opens(tmp_path, first), opens(tmp_path, second)) == (False, True)
    assert "ended" in token("list", data=tmp_path).stdout.splitlines()[0]
    assert token("revoke", "--all", data=tmp_path).exit_code == 0
    assert token("list", data=tmp_path).stdout == ""


def test_a_rotated_token_is_replaced_by_one_of_the_same_name_scopes_and_lifetime(tmp_path: Path) -> None:
    first = token("create", "one", "--scope", "ingest", "--expires", "90d", data=tmp_path).stdout.strip()
    second = token("rotate", first[:11], "--overlap", "1h", data=tmp_path).stdout.strip()
    assert (opens(tmp_path, first), opens(tmp_path, second)) == (True, True)
    third = token("rotate", second[:11], data=tmp_path).stdout.strip()
    assert (opens(tmp_path, second), opens(tmp_path, third)) == (False, True)
    lines = token("list", "--json", data=tmp_path).stdout.splitlines()
    old, _, new = sorted(map(json.loads, lines), key=lambda one: (one["created_at"], one["expires_at"]))
    assert {(one["name"], tuple(one["scopes"])) for one in (old, new)} == {("one", ("ingest",))}
    assert datetime.fromisoformat(new["expires_at"]) - datetime.fromisoformat(new["created_at"]) == timedelta(
        90
    )
    assert token("rotate", "ff_nothing1", data=tmp_path).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("create", "a", "--scope", "admin"), "admin"),
        (("create", "a", "--expires", "soon"), "soon"),
        (("create", "a", "--expires", "0d"), "0d"),
        (("create", ""), "name"),
        (("revoke",), "--all"),
        (("revoke", "x", "--all"), "--all"),
        (("revoke", "nobody"), "nobody"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    refused = token(*arguments, data=tmp_path)
    assert refused.exit_code == 2
    assert named in refused.stderr
    assert refused.stdout == ""
