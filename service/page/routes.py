"""Serves the page: its document, its modules and style, and plotly.js out of the installed package.

A browser gets all of it without a token. Data is in the document alone, and only for who may read it: while
there are tokens that is nobody who follows a link, and what the page shows it asks of the API.
"""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from html import escape
from importlib import resources
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.api.answers import tag_matches
from service.api.context import context_of
from service.api.problems import not_found
from service.ink import clean

from .served import Served, serve_view
from .served_fleet import FleetFilter

_TYPES: Mapping[str, str] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DOCUMENT = "index.html"
_FIRST = "main.js"
"""The module that the document starts."""
_IMPORTED = re.compile(rb'\bfrom "\./([^"]+)";')
_REVALIDATE = "no-cache"
"""Asked for each time, and answered with 304 where it is the same."""
_FOR_A_YEAR = "public, max-age=31536000, immutable"
"""An address with a version in it: what it stands for never changes."""

_MAX_TEXT = 1024
"""Characters of a name of a host or metric in an address, or of what is looked for."""

Id = Annotated[str | None, Query(max_length=64)]
Place = Annotated[str | None, Query(max_length=20)]
Words = Annotated[str | None, Query(max_length=_MAX_TEXT)]


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent."""

    body: bytes
    media_type: str
    etag: str
    encoding: str = ""


class Plotly:
    """plotly.js of the installed package, packed once, when it is first asked for."""

    def __init__(self) -> None:
        self.version = version("plotly")
        self.name = f"plotly-{self.version}.min.js"
        self._lock, self._packed = threading.Lock(), b""

    def file(self, *, is_packed: bool) -> File:
        """The script, for a client that unpacks gzip or for one that does not."""
        body = self._gzipped() if is_packed else self._plain()
        encoding = "gzip" if is_packed else ""
        etag = f'"plotly-{self.version}{"-gzip" if is_packed else ""}"'
        return File(body, _TYPES[".js"], etag, encoding)

    def _gzipped(self) -> bytes:
        with self._lock:
            # mtime: the same bytes from every process behind one address; the first reader waits for this,
            # and a higher level takes twice as long for 2 % less
            self._packed = self._packed or gzip.compress(self._plain(), 6, mtime=0)
        return self._packed

    @staticmethod
    def _plain() -> bytes:
        # not `import plotly`: its Python side takes longer to import than all of ours
        return resources.files("plotly").joinpath("package_data/plotly.min.js").read_bytes()


class OwnFiles:
    """Modules, styles and icon, at addresses that name their release: what a browser has it keeps."""

    def __init__(self, files: Mapping[str, File]) -> None:
        self._files = files
        self.release = _digest("".join(f"{name} {files[name].etag}\n" for name in sorted(files)).encode())

    def preloads(self) -> str:
        """A link for each module that the first one needs, so that they are fetched at once, not in turn."""
        found, reached = [_FIRST], 0
        while reached < len(found):
            named = _IMPORTED.findall(self._files[found[reached]].body)
            found += [name for name in map(bytes.decode, named) if name not in found]
            reached += 1
        links = (f'<link rel="modulepreload" href="/page/{self.release}/{name}">' for name in found)
        return "\n".join(links)

    def send(self, request: Request, release: str, name: str) -> Response:
        """A file as it is now; a page opened before, or made by another process, may name another."""
        if name not in self._files:
            raise not_found("file", name)
        return _send(request, self._files[name], _FOR_A_YEAR if release == self.release else _REVALIDATE)


class Document:
    """The one document of all views: plain, or with what can be read of a view before any script."""

    def __init__(self, template: File, plotly: Plotly, own: OwnFiles) -> None:
        told = template.body.replace(b"{plotly}", plotly.name.encode())
        told = told.replace(b"{modules}", own.preloads().encode()).replace(b"{release}", own.release.encode())
        # beside the modules, not after them
        self._charts = f'<link rel="preload" as="script" href="/page/{plotly.name}">'
        self._parts = re.split(rb"\{title\}|\{charts\}|\{view\}", told)
        self.plain = _file(_DOCUMENT, self._joined("firstfault", "", ""))

    def page(
        self,
        request: Request,
        *,
        view: Id = None,
        run: Id = None,
        incident: Id = None,
        host: Words = None,
        attempt: Place = None,
        start: Annotated[Place, Query(alias="from")] = None,
        to: Place = None,
        metric: Words = None,
        curves: Words = None,
        by: Id = None,
        ranks: Words = None,
        at: Place = None,
        label: Id = None,
        severity: Id = None,
        state: Id = None,
        text: Words = None,
        page: Words = None,
        trial: Id = None,
    ) -> Response:
        """The document, with what an address names where it can be read before any script."""
        # they name the view to the page's own static/address.js; an unknown one is refused as everywhere
        del attempt, start, to, metric, curves, by, ranks, at, trial
        wanted = FleetFilter(label=label, severity=severity, state=state, text=text, page=page)
        named = "hosts" if view is None and host is not None else view
        served = serve_view(
            request, context_of(request), view=named, run=run, incident=incident, wanted=wanted
        )
        if served is None:
            return _send(request, self.plain, _REVALIDATE)
        return self.filled(served, has_charts=run is not None or incident is not None)

    def filled(self, served: Served, *, has_charts: bool) -> Response:
        """With data in it, so that nothing on the way and no disk keeps it."""
        title = escape(clean(served.title, 80))
        body = self._joined(title, self._charts if has_charts else "", served.body)
        return Response(body, media_type=self.plain.media_type, headers={"Vary": "Accept-Encoding"})

    def _joined(self, *given: str) -> bytes:
        first, *rest = self._parts
        return first + b"".join(text.encode() + part for text, part in zip(given, rest, strict=True))


def make_page_router() -> APIRouter:
    """The routes of the page: ``/`` and what it loads, below ``/page/``."""
    import pyarrow.parquet  # noqa: F401  # 0.2 s that the first who asks for a curve would wait for

    router = APIRouter(include_in_schema=False)
    plotly = Plotly()
    files = _load()
    template = files.pop(_DOCUMENT)
    own = OwnFiles(files)

    router.add_api_route("/", Document(template, plotly, own).page, methods=["GET"])

    @router.get("/page/{name}")
    def library(request: Request, name: str) -> Response:
        if name != plotly.name:
            raise not_found("file", name)
        return _send(request, plotly.file(is_packed=_unpacks_gzip(request)), _FOR_A_YEAR)

    @router.get("/page/{release}/{name}")
    def part(request: Request, release: str, name: str) -> Response:
        return own.send(request, release, name)

    return router


def _load() -> dict[str, File]:
    """Every file of the page by its name; a request can name these and nothing else."""
    folder = resources.files(__package__).joinpath("static")
    return {one.name: _file(one.name, one.read_bytes()) for one in folder.iterdir() if one.is_file()}


def _file(name: str, body: bytes) -> File:
    media_type = _TYPES.get("." + name.rpartition(".")[2], "text/html; charset=utf-8")
    return File(body, media_type, f'"{_digest(body)}"')


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def _unpacks_gzip(request: Request) -> bool:
    """Whether gzip is among the encodings that the client takes.

    RFC 9110, section 12.5.3; a weight of 0 is a refusal.
    """
    for one in ",".join(request.headers.getlist("accept-encoding")).split(","):
        name, _, weight = one.replace(" ", "").lower().partition(";q=")
        if name in ("gzip", "x-gzip", "*"):
            return weight.rstrip("0") not in ("0.", "") if weight else True
    return False


def _send(request: Request, file: File, cache: str) -> Response:
    headers = {"ETag": file.etag, "Cache-Control": cache, "Vary": "Accept-Encoding"}
    if file.encoding:
        headers["Content-Encoding"] = file.encoding
    if tag_matches(request.headers.getlist("if-none-match"), file.etag, is_weak_fine=True):
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)
