"""The OpenAPI document, made of the routes and the types on the wire."""

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import polars as pl

from treeward.core.version import __version__
from treeward.explorer.explorer import Explorer
from treeward.serve import wire
from treeward.serve.settings import Settings

if TYPE_CHECKING:
    from treeward.serve.routes import Route

LONGEST_ARGUMENT = 4096
"""Characters of an argument in a path: a decision id contains the name of its user."""

_TOLD = {
    400: "The request breaks a rule; the message says which",
    401: "No key, or one that is not known",
    403: "The key may not do this, or the call came by a name that is not the service's, or from a page elsewhere",
    404: "There is no such thing",
    408: "The body took too long",
    409: "It contradicts what is there, or fewer items may be shown than were asked for",
    410: "Too late: the window in which feedback counts is over",
    413: "The body is too large",
    415: "The body is not JSON",
    429: "Too many requests with this key; Retry-After says when to come back",
    503: "Not ready, or too many requests are waiting",
}

_CHOSEN = "$response.body#/items/0/"
_LINKS: dict[str, dict[str, dict[str, Any]]] = {
    "recommend": {
        "say what came of it": {
            "operationId": "feedback",
            "requestBody": {"decision_id": _CHOSEN + "decision_id", "reward": 1.0},
        },
        "ask why": {"operationId": "explain", "parameters": {"decision": _CHOSEN + "decision_id"}},
        "look at the item": {"operationId": "item", "parameters": {"item": _CHOSEN + "item"}},
        "look at the node": {"operationId": "node", "parameters": {"node": _CHOSEN + "path/0"}},
        "look at the user": {"operationId": "user", "parameters": {"user": "$request.body#/user"}},
        "draw the user": {"operationId": "field", "parameters": {"user": "$request.body#/user"}},
        "erase the user": {"operationId": "forget", "parameters": {"user": "$request.body#/user"}},
    },
    "users": {"look at one": {"operationId": "user", "parameters": {"user": "$response.body#/users/0"}}},
    "node": {
        "draw it": {"operationId": "map", "parameters": {"node": "$response.body#/node"}},
        "its items": {"operationId": "inside", "parameters": {"node": "$response.body#/node"}},
        "a child": {"operationId": "node", "parameters": {"node": "$response.body#/children/0"}},
    },
    "search": {"look at an item": {"operationId": "item", "parameters": {"item": _CHOSEN + "item"}}},
    "reports": {"open one": {"operationId": "report_link", "parameters": {"report": "$response.body#/reports/0/name"}}},
}
"""What an answer leads to, by the handler that gives it."""


class Shape(NamedTuple):
    """What requests may contain, which depends on what is served."""

    id: str
    """What item ids are: ``"integer"`` or ``"string"``."""
    columns: dict[str, str]
    """What the catalogue's columns hold, those that can be filtered by."""
    dim: int
    """Of the items' vectors."""
    contexts: tuple[str, ...]
    """What requests may tell."""
    most: int
    """Rows of a batch, and items of a recommendation."""
    rewards: tuple[float, float]
    keyed: bool
    """Whether callers need keys."""

    @classmethod
    def of(cls, explorer: Explorer, settings: Settings) -> "Shape":
        """Return the shape of requests to an explorer."""
        shop, features = explorer.catalogue, explorer.policy.features
        columns = {name: kind for name, held in shop.schema.items() if (kind := _type_of(held))}
        return cls(
            "integer" if shop.ids_are_integers else "string", columns, shop.dim,
            () if features is None else tuple(features.contexts), settings.max_batch,
            (settings.reward_low, settings.reward_high), bool(settings.keys),
        )  # fmt: skip


def _type_of(held: pl.DataType) -> str:
    """Return the JSON type of a column that requests can filter by; nothing for any other."""
    if held == pl.String:
        return "string"
    if held == pl.Boolean:
        return "boolean"
    return "" if not held.is_numeric() else "integer" if held.is_integer() else "number"


def document(routes: Iterable["Route"], shape: Shape) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of some routes, for what is served."""
    routes = list(routes)
    kinds = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None]
    _, parts = msgspec.json.schema_components([*kinds, wire.Problem], ref_template="#/components/schemas/{name}")
    _fit(parts, shape)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shape.keyed)
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
    if shape.keyed:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return made


def _fit(parts: dict[str, Any], shape: Shape) -> None:
    """Say what only this service knows: its items' ids, its columns, its limits."""
    ask, reward = parts["RecommendRequest"]["properties"], parts["FeedbackRequest"]["properties"]
    ask["n"]["maximum"] = shape.most
    many = ("RecommendBatch", "requests"), ("FeedbackBatch", "rewards"), ("PutItems", "items"), ("RemoveItems", "items")
    for name, rows in many:
        parts[name]["properties"][rows] |= {"minItems": 1, "maxItems": shape.most}
    bounds = {"integer": {"minimum": -(2**63), "maximum": 2**63 - 1}, "string": {"maxLength": 4096}}
    item = {"type": shape.id, **bounds[shape.id]}
    for name in ("exclude", "fallback"):
        ask[name]["items"] = item
    ask["allow"]["anyOf"] = [{"type": "array", "items": item}, {"type": "null"}]
    conditions = {name: _condition(kind) for name, kind in shape.columns.items()}
    ask["where"]["anyOf"] = [
        {"type": "object", "properties": conditions, "additionalProperties": False},
        {"type": "null"},
    ]
    put = parts["PutItem"]["properties"]
    ask["context"]["anyOf"] = [_contexts(ask["context"], shape.contexts), {"type": "null"}]
    reward["item"] = put["item"] = parts["RemoveItems"]["properties"]["items"]["items"] = item
    put["vector"] |= {"minItems": shape.dim, "maxItems": shape.dim}
    values = {name: {"anyOf": [_value(kind), {"type": "null"}]} for name, kind in shape.columns.items() if name != "id"}
    put["columns"] |= {"properties": values, "additionalProperties": False}
    for name in ("mean", "width", "propensity"):  # null where the policy did not choose the item
        parts["Decision"]["properties"][name]["type"] = ["number", "null"]
    reward["reward"] |= {"minimum": shape.rewards[0], "maximum": shape.rewards[1]}
    by_id, by_item = [{"required": [name]} for name in ("decision_id", "item")]
    parts["FeedbackRequest"]["oneOf"] = [
        {**by_id, "not": {"anyOf": [by_item, {"required": ["user"]}]}},
        {"required": ["user", "item"], "not": by_id},
    ]


def _contexts(schema: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return a request's context, with the names that have a meaning here."""
    whole = next(one for one in schema["anyOf"] if one.get("type") == "object")
    values = whole["additionalProperties"]
    return {"type": "object", "properties": dict.fromkeys(names, values), "additionalProperties": False}


def _value(kind: str) -> dict[str, Any]:
    return {"type": kind} | ({"minimum": -(2**31), "maximum": 2**31 - 1} if kind in ("integer", "number") else {})


def _condition(kind: str) -> dict[str, Any]:
    value = _value(kind)
    options: list[dict[str, Any]] = [value, {"type": "null"}, {"type": "array", "items": value}]
    if kind != "boolean":
        ends = {"min": value, "max": value}
        options.append({"type": "object", "properties": ends, "additionalProperties": False, "minProperties": 1})
    return {"anyOf": options}


def _operation(route: "Route", keyed: bool) -> dict[str, Any]:
    answers: dict[str, Any] = {"200": {"description": "Done"}}
    if route.gives is not None:
        answers["200"]["content"] = {"application/json": {"schema": _ref(route.gives)}}
    if route.name in _LINKS:
        answers["200"]["links"] = _LINKS[route.name]
    codes = set(route.errors) | ({400, 404} if "{" in route.path else set())
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
    made: dict[str, Any] = {"summary": route.summary, "operationId": route.name, "responses": answers}
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    longest = {"user": wire.LONGEST_ID}
    places = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": longest.get(name, LONGEST_ARGUMENT)},
        }
        for name in names
    ]
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
