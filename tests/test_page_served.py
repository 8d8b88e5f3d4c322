"""What the document itself says before any script, to whom, and that a hostile name in it is text."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from service.access import create_token

from .api_builders import an_odd_incident
from .page_builders import Shown, shown


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Shown]:
    with shown(tmp_path) as one:
        yield one


class Read(HTMLParser):
    """The words of a document, its tags, and the attributes that could run something."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.words, self.tags, self.risky = "", set[str](), list[str]()
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.risky += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.risky += [
            value for _, value in attrs if (value or "").lstrip().startswith("javascript:") and value
        ]

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_run_is_told_and_drawn_before_any_script(api: Shown) -> None:
    run = api.judge("drift_param")
    said = Read(api.client().get(f"/?run={run}").text)
    assert "Rank 3 (host node-00" in said.words
    assert "scontrol update nodename=node-00" in said.words
    assert "checksum" in said.words
    assert {"svg", "path"} <= said.tags


def test_an_incident_is_told_with_what_people_made_of_it(api: Shown) -> None:
    api.judge("nan_activation")
    (one,) = api.client().get("/v1/incidents").json()["items"]
    note = {"state": "acknowledged", "note": "<b>looking</b>"}
    assert api.client().post(f"/v1/incidents/{one['id']}/state", json=note).status_code == 200
    said = Read(api.client().get(f"/?incident={one['id']}").text)
    assert one["sentence"] in said.words
    assert "acknowledged by local" in said.words
    assert "<b>looking</b>" in said.words
    assert "svg" in said.tags


def test_the_runs_are_a_list_the_worst_first(api: Shown) -> None:
    for log in ("healthy", "drift_param"):
        api.judge(log)
    page = api.client().get("/").text
    said = Read(page)
    assert said.words.index("drift_param") < said.words.index("healthy")
    assert "rank 3 on node-00, iteration 390" in said.words
    only = Read(api.client().get("/?label=healthy").text).words
    assert "healthy" in only
    assert "drift_param" not in only


def test_many_runs_are_pages_that_follow_each_other(api: Shown) -> None:
    import re

    for number in range(120):
        api.put(f"run-{number:03}")
    seen: list[str] = []
    address = "/"
    while address:
        page = api.client().get(address).text
        seen += re.findall(r"run-\d{3}", page)
        following = re.search(r'href="(/\?page=[^"]+)"', page)
        address = following[1] if following else ""
    assert sorted(seen) == [f"run-{number:03}" for number in range(120)]


def test_an_address_of_nothing_says_so_and_begins_anew(api: Shown) -> None:
    assert "There is no such run" in api.client().get("/?run=0123456789abcdef").text
    assert "There is no such incident" in api.client().get("/?incident=0").text
    assert "No run yet" in api.client().get("/?page=nonsense").text


def test_with_tokens_a_document_holds_data_for_who_may_read_alone(api: Shown) -> None:
    run = api.judge("drift_param")
    with api.store.database.write() as db:
        reads = create_token(db, "oncall", ("read",), api.now())
        sends = create_token(db, "trainer", ("ingest",), api.now())
    client = api.client()
    documents = {
        name: client.get(f"/?run={run}", headers={"Authorization": f"Bearer {token}"} if token else {})
        for name, token in (("reader", reads), ("trainer", sends), ("nobody", ""))
    }
    told = {name: "drift_param" in one.text for name, one in documents.items()}
    assert told == {"reader": True, "trainer": False, "nobody": False}
    assert documents["reader"].headers["cache-control"] == "no-store"
    assert documents["nobody"].headers["cache-control"] == "no-cache"
    assert "etag" not in documents["reader"].headers


@pytest.mark.parametrize(
    "text",
    [
        "</script><script>alert(1)</script>",
        '"><svg/onload=alert(2)>',
        "javascript:alert(3)",
        "a\u202egnp.exe\u2066",
        "&lt;b&gt;" * 20,
    ],
)
def test_a_hostile_name_is_text_in_the_document(api: Shown, text: str) -> None:
    run = api.put(text, an_odd_incident("h1", first={"suspects": [{"rank": 3, "host": text, "why": text}]}))
    for address in ("/", f"/?run={run}", "/?incident=h1"):
        page = api.client().get(address).text
        said = Read(page)
        assert said.tags & {"img", "iframe", "object"} == set()
        assert page.count("<script") == 1
        assert said.risky == []
        assert "\u202e" not in page
        assert text.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066")[:40] in said.words
