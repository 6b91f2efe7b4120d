"""The OpenAPI document, made of the routes and their types, and the same as a page."""

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

Schema = dict[str, Any]
LONGEST_ARGUMENT = 4096
"""Characters of an argument in a path: a decision id contains the name of its user."""
_STATUS = {
    400: "The request breaks a rule; the message says which",
    401: "No key, or an unknown one",
    403: "The key may not do this, or the host name is not the service's, or the request comes from another site",
    404: "Not found",
    408: "The body took too long",
    409: "It contradicts what is there, or fewer items may be shown than were asked for",
    410: "Too late: the window for feedback has ended",
    413: "The body is too large",
    415: "The body is not JSON",
    429: "Too many requests with this key; Retry-After says when to try again",
    503: "Not ready, or too many requests are waiting",
}
_USER, _FIRST, _BODY = "$request.body#/user", "$response.body#/items/0/", "$response.body#/"
_LINKS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "recommend": [
        ("explain", {"decision": _FIRST + "decision_id"}),
        ("item", {"item": _FIRST + "item"}),
        ("node", {"node": _FIRST + "path/0"}),
        ("user", {"user": _USER}),
        ("field", {"user": _USER}),
        ("forget", {"user": _USER}),
    ],
    "users": [("user", {"user": _BODY + "users/0"})],
    "node": [
        ("map", {"node": _BODY + "node"}),
        ("inside", {"node": _BODY + "node"}),
        ("node", {"node": _BODY + "children/0"}),
    ],
    "search": [("item", {"item": _FIRST + "item"})],
    "reports": [("report_link", {"report": _BODY + "reports/0/name"})],
}
"""Routes whose path can be filled from an answer, by the route that gives the answer."""


class Shape(NamedTuple):
    """What requests may contain, which depends on what is served."""

    id: str
    """JSON type of item ids: ``"integer"`` or ``"string"``."""
    columns: dict[str, str]
    """JSON types of the catalogue's columns that requests can filter by."""
    dim: int
    """Of the items' vectors."""
    contexts: tuple[str, ...]
    """Names that the context of a request may have."""
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
    if held == pl.String:
        return "string"
    if held == pl.Boolean:
        return "boolean"
    return "" if not held.is_numeric() else "integer" if held.is_integer() else "number"


def document(routes: Iterable["Route"], shape: Shape) -> Schema:
    """Return the OpenAPI 3.1 document of some routes, for what is served."""
    routes = list(routes)
    kinds = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None]
    problems = dict.fromkeys([wire.Problem, *(route.problem for route in routes)])
    _, schemas = msgspec.json.schema_components([*kinds, *problems], ref_template="#/components/schemas/{name}")
    _restrict(schemas, shape)
    paths: Schema = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shape.keyed)
    about = "Explore a whole catalogue for every user: recommend, give feedback, inspect."
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    if any(route.problem is not wire.Problem for route in routes):
        schemes["subscription"] = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    keys = {"securitySchemes": schemes} if shape.keyed else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "treeward", "version": __version__, "description": about},
        "paths": paths,
        "components": {"schemas": schemas, **keys},
    }


def _restrict(schemas: Schema, shape: Shape) -> None:
    """Add what only this service knows: the type of its ids, its columns, its limits."""
    parts = {name: schema.get("properties", {}) for name, schema in schemas.items()}
    ask, put, reward = parts["RecommendRequest"], parts["PutItem"], parts["FeedbackRequest"]
    bounds = {"integer": {"minimum": -(2**63), "maximum": 2**63 - 1}, "string": {"maxLength": 4096}}
    item = {"type": shape.id, **bounds[shape.id]}
    for name, rows in (
        ("RecommendBatch", "requests"), ("FeedbackBatch", "rewards"), ("PutItems", "items"), ("RemoveItems", "items"),
    ):  # fmt: skip
        parts[name][rows] |= {"minItems": 1, "maxItems": shape.most}
    ask["n"]["maximum"] = shape.most
    ask["exclude"]["items"] = ask["fallback"]["items"] = reward["item"] = put["item"] = item
    parts["RemoveItems"]["items"]["items"] = item
    ask["allow"]["anyOf"] = [{"type": "array", "items": item}, {"type": "null"}]
    ask["where"]["anyOf"] = [
        _object({name: _condition(kind) for name, kind in shape.columns.items()}),
        {"type": "null"},
    ]
    fact = next(one for one in ask["context"]["anyOf"] if one.get("type") == "object")["additionalProperties"]
    ask["context"]["anyOf"] = [_object(dict.fromkeys(shape.contexts, fact)), {"type": "null"}]
    put["vector"] |= {"minItems": shape.dim, "maxItems": shape.dim}
    values = {name: {"anyOf": [_value(kind), {"type": "null"}]} for name, kind in shape.columns.items() if name != "id"}
    put["columns"] |= _object(values)
    for name in ("mean", "width", "propensity"):  # null where the policy did not choose the item
        parts["Decision"][name]["type"] = ["number", "null"]
    reward["reward"] |= {"minimum": shape.rewards[0], "maximum": shape.rewards[1]}
    by_id, by_item = [{"required": [name]} for name in ("decision_id", "item")]
    schemas["FeedbackRequest"]["oneOf"] = [
        {**by_id, "not": {"anyOf": [by_item, {"required": ["user"]}]}},
        {"required": ["user", "item"], "not": by_id},
    ]


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value(kind: str) -> Schema:
    return {"type": kind} | ({"minimum": -(2**31), "maximum": 2**31 - 1} if kind in ("integer", "number") else {})


def _condition(kind: str) -> Schema:
    value = _value(kind)
    options = [value, {"type": "null"}, {"type": "array", "items": value}]
    if kind != "boolean":
        options.append(_object({"min": value, "max": value}) | {"minProperties": 1})
    return {"anyOf": options}


def _operation(route: "Route", keyed: bool) -> Schema:
    done = str(route.status)
    answers: Schema = {done: {"description": "Done"} | (_content(route.gives) if route.gives is not None else {})}
    if route.name in _LINKS:
        links = _LINKS[route.name]
        answers["200"]["links"] = {name: {"operationId": name, "parameters": given} for name, given in links}
    if route.name == "recommend":
        body = {"decision_id": _FIRST + "decision_id", "reward": 1.0}
        answers["200"]["links"]["feedback"] = {"operationId": "feedback", "requestBody": body}
    codes = set(route.errors) | ({400, 404} if route.arguments else set())
    if route.role is not None:
        codes |= {403, 429, 503} | ({401} if keyed else set())
    if route.takes is not None:
        codes |= {400, 408, 413, 415}
    error = wire.Health if route.path == "/readyz" else route.problem
    answers |= {str(code): {"description": _STATUS[code]} | _content(error) for code in sorted(codes)}
    made: Schema = {"summary": route.summary, "operationId": route.name, "responses": answers}
    arguments = [
        _parameter(name, "path", {"type": "string", "minLength": 1, "maxLength": _longest(name)})
        for name in route.arguments
    ]
    if arguments or route.asks is not None:
        made["parameters"] = arguments + _query(route.asks)
    if route.takes is not None:
        made["requestBody"] = {"required": True} | _content(route.takes)
    if keyed and route.role is not None:
        made["security"] = [{"key": []}] + ([] if route.problem is wire.Problem else [{"subscription": []}])
    return made


def _longest(argument: str) -> int:
    return wire.LONGEST_ID if argument == "user" else LONGEST_ARGUMENT


def _query(kind: type[msgspec.Struct] | None) -> list[Schema]:
    fields = {} if kind is None else msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    return [
        _parameter(name, "query", {key: value for key, value in schema.items() if key != "default"})
        for name, schema in fields.items()
    ]


def _parameter(name: str, where: str, schema: Schema) -> Schema:
    return {"name": name, "in": where, "required": where == "path", "schema": schema}


def _content(kind: type[msgspec.Struct]) -> Schema:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}}


_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 "
    "1rem}table{border-collapse:collapse}td,th{border-bottom:1px solid #8884;padding:.3rem .8rem;text-align:left}"
    "pre{background:#8882;padding:1rem;overflow:auto}h2{margin-top:2.5rem}"
)


def page(made: Schema) -> str:
    """Return the document as a page to read, without scripts, and with nothing from other sites."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>treeward API</title><style>{_STYLE}</style><h1>treeward {escape(made['info']['version'])}</h1>"
        f"<p>{escape(made['info']['description'])} The same as <a href=openapi.json>OpenAPI</a>.</p>"
    ]
    for path, methods in made["paths"].items():
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
    for name, schema in made["components"]["schemas"].items():
        text = escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2><pre>{text}</pre>')
    return "".join(parts)


def _linked(held: Schema) -> str:
    ref = held.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    name = escape(ref.rpartition("/")[2])
    return f'<a href="#{name}">{name}</a>' if name else ""
