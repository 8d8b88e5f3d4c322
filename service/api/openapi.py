"""The OpenAPI document: ours besides what FastAPI finds out by itself.

The shape of a verdict is the published schema of `detectors`, taken over as it is; each route names the
problems that it may answer with; examples are real answers (`examples.json`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from detectors.verdict import schema as verdict_schema
from service.intake_problem import COMPONENT, PROBLEM_JSON

from .guards import scope_needed
from .negotiation import ARROW
from .problems import Problem

# Any: an OpenAPI document is JSON that others define.
Json = dict[str, Any]

_REF = "#/components/schemas/"
_PROBLEMS = {
    "400": "The request cannot be read.",
    "401": "A token is needed, or this one is not valid.",
    "403": "The token lacks the scope; or, without tokens, the request comes from elsewhere.",
    "404": "There is no such thing.",
    "409": "It cannot be, from what it is or what is kept of it.",
    "412": "It has changed since.",
    "413": "The body is too large.",
    "422": "A parameter or the body breaks a rule.",
    "429": "Too many requests, or too many wrong tokens: wait `Retry-After` seconds.",
    "503": "The store cannot be used just now.",
}
_OF_THE_FRAMEWORK = ("HTTPValidationError", "ValidationError")
"""Its own shapes of an invalid request, which nobody is sent."""
_NONFINITE, _NONFINITE_TEXTS = "NonFinite", ("NaN", "Infinity", "-Infinity")
_ALWAYS = ("401", "403", "429", "503")
_OPEN = ("/healthz", "/readyz")


def describe(app: FastAPI) -> Json:
    """The document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        _point_at_components(document["components"]["schemas"])
        _add_verdict(document)
        document["components"]["schemas"]["Problem"] = _problem_schema(document)
        document = _told_apart(document)
        document["paths"] = _named(document["paths"], document["components"]["schemas"])
        document["components"]["schemas"] = {
            name: _named(part, {}) for name, part in document["components"]["schemas"].items()
        } | {_NONFINITE: {"type": "string", "enum": list(_NONFINITE_TEXTS)}}
        document["components"]["securitySchemes"] = {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "`firstfault token create` makes one.",
            }
        }
        for name in _OF_THE_FRAMEWORK:
            document["components"]["schemas"].pop(name, None)
        config = app.state.context.config
        bounds = {"limit": config.max_page_items, "points": config.max_curve_points}
        for path, method, operation in _operations(document):
            _complete(path, method, operation)
            _narrow(operation, bounds)
        app.openapi_schema = document
    return app.openapi_schema


@lru_cache(maxsize=1)
def examples() -> Json:
    """Real answers by operation and status."""
    loaded: Json = json.loads(
        resources.files(__package__).joinpath("examples.json").read_text(encoding="utf-8")
    )
    return loaded


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


def _complete(path: str, method: str, operation: Json) -> None:
    """Problems, security and examples of one operation."""
    responses = operation["responses"]
    if "HTTPValidationError" in json.dumps(responses.get("422", {})):
        del responses["422"]  # FastAPI's own shape of an invalid request, which nobody is sent
    for status in _problems_of(path, method, operation):
        responses.setdefault(status, {"description": _PROBLEMS[status], "content": {}})
        if not responses[status].get("content"):
            responses[status]["content"] = {PROBLEM_JSON: {"schema": {"$ref": f"{_REF}Problem"}}}
    if path not in _OPEN:
        # the empty one: without any token in the store this machine needs none
        operation["security"] = [{"token": [scope_needed(method, path).value]}, {}]
    for status, shown in examples().get(f"{method} {path}", {}).items():
        for media_type, content in responses[status]["content"].items():
            if media_type != ARROW:
                content["example"] = shown


def _narrow(operation: Json, bounds: Mapping[str, int]) -> None:
    """Say of parameters how large the settings let them be, and that none of them can be null."""
    for parameter in operation.get("parameters", ()):
        kinds = [one for one in parameter["schema"].get("anyOf", []) if one != {"type": "null"}]
        if len(kinds) == 1:
            del parameter["schema"]["anyOf"]
            parameter["schema"] |= kinds[0]
        if parameter["name"] in bounds:
            parameter["schema"] = {"type": "integer", "minimum": 1, "maximum": bounds[parameter["name"]]}


def _problems_of(path: str, method: str, operation: Json) -> list[str]:
    if path in _OPEN:
        return ["403", "422", "429"]
    found = [*_ALWAYS, "422"]
    if "{" in path:
        found.append("404")
    if method == "POST":
        found += ["400", "413"]
    if any(one["name"].lower() == "if-match" for one in operation.get("parameters", [])):
        found.append("412")
    if path.endswith(("/state", "/what-if")):
        found.append("409")
    return sorted(found)


def _point_at_components(schemas: Json) -> None:
    """Put a reference where a model marks a field as a component of ours."""
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if COMPONENT in field:
                schema["properties"][name] = {"$ref": _REF + field[COMPONENT]}


def _add_verdict(document: Json) -> None:
    """The published schema of a verdict, its definitions made components."""
    schema = copy.deepcopy(verdict_schema())
    definitions = schema.pop("$defs")
    for key in ("$schema", "$id"):
        schema.pop(key)
    parts = {"Verdict": schema, **{_component(name): part for name, part in definitions.items()}}
    document["components"]["schemas"].update({name: _rewired(part) for name, part in parts.items()})


def _told_apart(document: Json) -> Json:
    """The document with names of ours for models of one name, which FastAPI names by their modules.

    Their titles are what generators call them, and must differ too.
    """
    schemas = document["components"]["schemas"]
    names = {name: _shortened(name) for name in schemas if "__" in name}
    for name, short in names.items():
        assert short not in schemas, f"two models are called {short}"
        schemas[name]["title"] = short
    refs = {_REF + name: _REF + short for name, short in names.items()}

    def renamed(node: Any) -> Any:
        if isinstance(node, list):
            return [renamed(one) for one in node]
        if not isinstance(node, dict):
            return node
        return {
            key: refs.get(value, value) if key == "$ref" else renamed(value) for key, value in node.items()
        }

    found: Json = renamed(document)
    found["components"]["schemas"] = {
        names.get(name, name): schema for name, schema in found["components"]["schemas"].items()
    }
    return found


def _shortened(name: str) -> str:
    """A model's name behind that of its module.

    >>> _shortened("service__verdict_difference__Kind"), _shortened("service__api__models__State")
    ('VerdictDifferenceKind', 'ApiState')
    """
    *modules, model = name.split("__")
    module = modules[-2] if modules[-1] == "models" else modules[-1]
    return "".join(word.capitalize() for word in module.split("_")) + model


def _named(node: Any, components: Json) -> Any:
    """The node with references in place of what stands in many places: generators make a type of each.

    Schemas that say of what component they are go into ``components``.
    """
    if isinstance(node, list):
        return [_named(one, components) for one in node]
    if not isinstance(node, dict):
        return node
    if tuple(node.get("enum", ())) == _NONFINITE_TEXTS:
        return {"$ref": _REF + _NONFINITE}
    found = {key: _named(value, components) for key, value in node.items()}
    name = found.pop(COMPONENT, None)
    if name is None:
        return found
    components[name] = found
    return {"$ref": _REF + name}


def _component(name: str) -> str:
    """The name of a definition as a component.

    >>> _component("fault_label")
    'VerdictFaultLabel'
    """
    return "Verdict" + "".join(word.capitalize() for word in name.split("_"))


def _rewired(node: Any) -> Any:
    """The schema with its references pointing at components."""
    if isinstance(node, dict):
        return {
            key: _REF + _component(value.rpartition("/")[2]) if key == "$ref" else _rewired(value)
            for key, value in node.items()
        }
    return [_rewired(one) for one in node] if isinstance(node, list) else node


def _problem_schema(document: Json) -> Json:
    schema = Problem.model_json_schema(ref_template=_REF + "{model}")
    document["components"]["schemas"].update(schema.pop("$defs"))
    return schema
