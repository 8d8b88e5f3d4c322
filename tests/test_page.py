"""The page as files: who gets it, how it is kept, and that it is nothing but files."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.access import create_token

from .page_builders import Shown, shown


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Shown]:
    with shown(tmp_path) as one:
        yield one


def plotly_address(api: Shown) -> str:
    found = re.search(r'name="plotly" content="([^"]+)"', api.client().get("/").text)
    assert found
    return found[1]


def own_address(api: Shown, name: str) -> str:
    found = re.search(r'"(/page/[0-9a-f]+/)main\.js"', api.client().get("/").text)
    assert found
    return found[1] + name


def test_every_view_is_an_address_of_the_same_document(api: Shown) -> None:
    plain = api.client().get("/?view=alerts")
    view = api.client().get("/?run=0123456789abcdef&view=ranks&attempt=0&from=3&to=9&by=host")
    assert plain.status_code == view.status_code == 200
    assert plain.content == view.content
    assert plain.headers["content-type"] == "text/html; charset=utf-8"
    assert api.client().get("/?veiw=alerts").status_code == 422


def test_what_the_document_loads_is_there_and_all_of_it_is_ours(api: Shown) -> None:
    client = api.client()
    loaded = re.findall(r'(?:src|href|content)="(/page/[^"]+)"', client.get("/").text)
    modules = {name for name in loaded if name.endswith(".js") and "plotly" not in name}
    while (
        missing := {
            f"{module.rpartition('/')[0]}/{name}"
            for module in modules
            for name in re.findall(r'from "\./([^"]+)"', client.get(module).text)
        }
        - modules
    ):
        modules |= missing
    assert len(modules) > 5
    for name in modules | set(loaded):
        assert client.get(name).status_code == 200, name
    assert "//" not in "".join(loaded)


def test_a_type_is_stated_and_not_to_be_guessed(api: Shown) -> None:
    client = api.client()
    kinds = {"main.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
    for name, kind in kinds.items():
        headers = client.get(own_address(api, name)).headers
        assert headers["content-type"].startswith(kind)
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]


def test_our_own_files_are_kept_for_as_long_as_their_address_is_used(api: Shown) -> None:
    first = api.client().get(own_address(api, "main.js"))
    assert "immutable" in first.headers["cache-control"]


def test_a_file_of_another_release_is_sent_as_it_is_now_and_asked_for_again(api: Shown) -> None:
    first = api.client().get("/page/0123456789abcdef/main.js")
    again = api.client().get("/page/f/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert first.content == api.client().get(own_address(api, "main.js")).content
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


def test_modules_are_fetched_beside_the_first_and_plotly_where_there_are_curves(
    api: Shown,
) -> None:
    def preloaded(path: str, kind: str) -> list[str]:
        return re.findall(rf'<link rel="{kind}".* href="[^"]*/([^"/]+)">', api.client().get(path).text)

    modules = preloaded("/", "modulepreload")
    assert {"main.js", "run.js", "chart.js", "mini.js"} <= set(modules)
    assert len(modules) == len(set(modules))
    assert "heatmap.js" not in modules
    assert not preloaded("/", "preload")
    (charts,) = preloaded("/?run=0123456789abcdef", "preload")
    assert charts == plotly_address(api).rpartition("/")[2]


def test_plotly_is_that_of_the_installed_package_packed_and_kept_for_long(api: Shown) -> None:
    from importlib import resources
    from importlib.metadata import version

    address = plotly_address(api)
    with api.client().stream("GET", address, headers={"Accept-Encoding": "gzip"}) as packed:
        body = b"".join(packed.iter_raw())
    assert version("plotly") in address
    assert packed.headers["content-encoding"] == "gzip"
    assert "immutable" in packed.headers["cache-control"]
    script = resources.files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    assert gzip.decompress(body) == script
    again = api.client().get(address, headers={"If-None-Match": packed.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("encoding", ["", "identity", "br", "gzip;q=0", "gzip; q=0.0"])
def test_a_client_that_does_not_unpack_gets_plotly_plain(api: Shown, encoding: str) -> None:
    answer = api.client().get(plotly_address(api), headers={"Accept-Encoding": encoding})
    assert "content-encoding" not in answer.headers
    assert len(answer.content) > 1_000_000


@pytest.mark.parametrize(
    "name", ["../routes.py", "..%2froutes.py", "%2e%2e/routes.py", "index.html", "plotly-0.0.1.min.js", "x"]
)
def test_nothing_but_the_files_of_the_page_can_be_asked_for(api: Shown, name: str) -> None:
    release = own_address(api, "main.js").rpartition("/")[0]
    for folder in ("/page", release, "/page/other"):
        assert api.client().get(f"{folder}/{name}").status_code == 404


def test_the_page_comes_without_a_token_and_what_it_would_show_does_not(api: Shown) -> None:
    with api.store.database.write() as db:
        create_token(db, "oncall", ("read",), api.now())
    client = api.client()
    assert client.get("/").status_code == 200
    assert client.get(own_address(api, "main.js")).status_code == 200
    assert client.get("/v1/runs").status_code == 401
    assert client.post("/page/main.js").status_code == 401


def test_no_string_is_ever_read_as_html() -> None:
    from service.page import routes

    scripts = (Path(routes.__file__).parent / "static").glob("*.js")
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    )
    found = {path.name: forbidden.findall(path.read_text()) for path in scripts}
    assert len(found) > 5
    assert not any(found.values())
