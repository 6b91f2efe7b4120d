"""The OpenAPI document, made of the routes and the types on the wire."""

from collections.abc import Iterable
from html import escape
from typing import Any

import msgspec

from treeward.core.version import __version__
from treeward.serve import wire
from treeward.serve.routes import Route

_TOLD = {
    400: "The request breaks a rule; the message says which",
    401: "No key, or one that is not known",
    403: "The key may not do this, or the service was called by a name that is not its own",
    404: "There is no such thing",
    408: "The body took too long",
    409: "It contradicts what is there, or fewer items may be shown than were asked for",
    410: "Too late: the window in which feedback counts is over",
    413: "The body is too large",
    415: "The body is not JSON",
    429: "Too many requests with this key; Retry-After says when to come back",
    503: "Not ready, or too many requests are waiting",
}


def document(routes: Iterable[Route], keyed: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of some routes."""
    routes = list(routes)
    kinds = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None]
    _, parts = msgspec.json.schema_components([*kinds, wire.Problem], ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, keyed)
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "treeward",
            "version": __version__,
            "description": "Explore a whole catalogue for every user: recommend, say what came of it, look at it.",
        },
        "paths": paths,
        "components": {"schemas": parts},
    }
    if keyed:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return made


def _operation(route: Route, keyed: bool) -> dict[str, Any]:
    answers: dict[str, Any] = {"200": {"description": "Done"}}
    if route.gives is not None:
        answers["200"]["content"] = {"application/json": {"schema": _ref(route.gives)}}
    codes = set(route.errors)
    if route.role is not None:
        codes |= {403, 429, 503} | ({401} if keyed else set())
    if route.takes is not None:
        codes |= {400, 408, 413, 415}
    for code in sorted(codes):
        kind = wire.Health if route.path == "/readyz" else wire.Problem
        answers[str(code)] = {
            "description": _TOLD[code],
            "content": {"application/json": {"schema": _ref(kind)}},
        }
    made: dict[str, Any] = {"summary": route.summary, "operationId": route.handler, "responses": answers}
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    text = {"type": "string", "minLength": 1, "maxLength": 512}
    places = [{"name": name, "in": "path", "required": True, "schema": text} for name in names]
    if places or route.asks is not None:
        made["parameters"] = places + _query(route.asks)
    if route.takes is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(route.takes)}}}
    if keyed and route.role is not None:
        made["security"] = [{"key": []}]
    return made


def _query(kind: type | None) -> list[dict[str, Any]]:
    if kind is None:
        return []
    told = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    made = []
    for name, schema in told.items():
        options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
        held = {key: value for key, value in options[0].items() if key != "default"}
        made.append({"name": name, "in": "query", "required": False, "schema": held})
    return made


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def page(told: dict[str, Any]) -> bytes:
    """Return the document as a page to read: no script, nothing from elsewhere."""
    parts = []
    for path, methods in told["paths"].items():
        for method, one in methods.items():
            codes = "".join(
                f"<tr><td>{code}</td><td>{escape(answer['description'])}</td><td>{_linked(answer)}</td></tr>"
                for code, answer in one["responses"].items()
            )
            takes = _linked(one.get("requestBody", {}))
            parts.append(
                f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(one['summary'])}.</p>"
                + (f"<p>Takes {takes}.</p>" if takes else "")
                + f"<table><tr><th>status</th><th>means</th><th>body</th></tr>{codes}</table>"
            )
    for name, schema in told["components"]["schemas"].items():
        text = escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2><pre>{text}</pre>')
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>treeward API</title><style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;"
        "max-width:60rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}td,th{border-bottom:1px solid "
        "#8884;padding:.3rem .8rem;text-align:left}pre{background:#8882;padding:1rem;overflow:auto}"
        f"h2{{margin-top:2.5rem}}</style><h1>treeward {escape(told['info']['version'])}</h1>"
        f"<p>{escape(told['info']['description'])} The same as <a href=openapi.json>OpenAPI</a>.</p>" + "".join(parts)
    ).encode()


def _linked(held: dict[str, Any]) -> str:
    ref = held.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    name = escape(ref.rpartition("/")[2])
    return f'<a href="#{name}">{name}</a>' if name else ""
