"""What does the API reference say? Markdown made from the OpenAPI document: all operations, one, the events.

Links are those of a file of docs/.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

PREFIX = "/open-api/v1"
Json = dict[str, Any]
HEAD = """# API reference

Each operation with its fields, limits and codes. Written by `make docs` from the service's OpenAPI document, which
`GET {base_url}/openapi.json` answers whole, with examples. How calls are signed, retried and refused:
[specification.md](specification.md).
"""


class Operation(NamedTuple):
    """`path` without the prefix. `example`: a request that it takes, as JSON. `key`: the field that is its
    idempotency key, if any."""

    path: str
    summary: str
    text: str
    scope: str
    example: str
    key: str


def reference(document: Json, *, on_site: bool = False) -> str:
    """Every operation, then every object that calls and answers are made of. On the site operations have pages."""
    schemas = document["components"]["schemas"]
    paths = _paths(document)
    common = frozenset.intersection(*(_codes(operation) for operation in paths.values()))
    lines = [
        HEAD,
        "## Operations",
        "",
        f"Each is called by `POST {{base_url}}{PREFIX}/…`. {_refused(common, 'Any call')}",
    ]
    for path, operation in paths.items():
        lines += _operation(path, operation, schemas, _codes(operation) - common)
        if on_site:
            lines += ["", f"[Examples, errors and a signed call](/docs/reference{path}.md)"]
    lines += ["", "## Objects"]
    sent = {_body(operation) for operation in paths.values()}
    for name, schema in schemas.items():
        if name != "Refusal" and name not in sent:
            lines += ["", *_object(name, schema)]
    return "\n".join(lines) + "\n"


def operations(document: Json) -> list[Operation]:
    return [
        Operation(
            path=path,
            summary=operation["summary"],
            text=operation["description"],
            scope=operation["description"].rpartition("`")[0].rpartition("`")[2],
            example=json.dumps(_request(operation)["examples"]["call"]["value"], indent=2, ensure_ascii=False),
            key=_key(document["components"]["schemas"][_body(operation)]),
        )
        for path, operation in _paths(document).items()
    ]


def operation(document: Json, path: str) -> str:
    """The fields of one operation, and what may be answered."""
    schemas, described = document["components"]["schemas"], _paths(document)[path]
    answer = _answer(described)
    lines = [
        f"# {described['summary']}",
        "",
        f"`POST {document['servers'][0]['url']}{PREFIX}{path}`",
        "",
        described["description"],
        "",
        "## Request",
        "",
        *_fields(schemas[_body(described)]),
        "",
        "## Answer",
        "",
        f"`data` is {_type(answer)}.",
    ]
    for name in _named(schemas, answer, schemas[_body(described)]):
        lines += ["", *_object(name, schemas[name])]
    lines += ["", "## Errors", "", *_errors(document, described)]
    return "\n".join(lines) + "\n"


def examples(document: Json, path: str) -> str:
    """A request and the answers to it."""
    described = _paths(document)[path]
    return "\n".join(
        (
            *_shown("Example request", _request(described)["examples"]),
            *_shown("Example answer", _content(described)["examples"]),
        )
    )


def events(document: Json) -> str:
    """Every webhook event: when it comes, its headers, an example."""
    lines = [
        "# Webhook events",
        "",
        "Each is a `POST` to your callback URL. How to receive one: [the guide](guides/receive-webhooks.md);"
        " order, retries and hints: [the specification](specification.md#6-events).",
    ]
    for name, item in document["webhooks"].items():
        event = item["post"]
        lines += ["", f"## {name}", "", f"{event['summary']}. {event['description']}", "", "| header | | example |"]
        lines += ["|---|---|---|"]
        lines += [
            f"| `{one['name']}` | {_cell(one['description'])} | `{one['example']}` |" for one in event["parameters"]
        ]
        [example] = event["requestBody"]["content"]["application/json"]["examples"].values()
        lines += ["", *_json(example["value"])]
    return "\n".join(lines) + "\n"


def _key(schema: Json) -> str:
    """Where it is required, it names what the call makes; else it names what was made before."""
    return next((name for name in ("refundTransactionId", "transactionId") if name in schema.get("required", ())), "")


def _paths(document: Json) -> dict[str, Json]:
    return {path.removeprefix(PREFIX): item["post"] for path, item in document["paths"].items()}


def _operation(path: str, operation: Json, schemas: Json, codes: frozenset[str]) -> Iterable[str]:
    yield from ("", f"### {path}", "", f"{operation['summary']}. {operation['description']}", "")
    yield from _fields(schemas[_body(operation)])
    yield from ("", f"Answers {_type(_answer(operation))}. {_refused(codes, 'It') if codes else ''}".rstrip())


def _object(name: str, schema: Json) -> list[str]:
    return [f"### The {name} object", "", *_fields(schema)]


def _content(operation: Json) -> Json:
    return operation["responses"]["200"]["content"]["application/json"]


def _answer(operation: Json) -> Json:
    return _content(operation)["schema"]["properties"]["data"]


def _request(operation: Json) -> Json:
    return operation["requestBody"]["content"]["application/json"]


def _codes(operation: Json) -> frozenset[str]:
    return frozenset(code for codes in _codes_by_status(operation).values() for code in codes)


def _codes_by_status(operation: Json) -> Mapping[str, list[str]]:
    refusals = {status: response for status, response in operation["responses"].items() if status != "200"}
    schemas = {
        status: response["content"]["application/json"]["schema"]["allOf"] for status, response in refusals.items()
    }
    return {status: body["properties"]["code"]["enum"] for status, (_, body) in schemas.items()}


def _refused(codes: Iterable[str], what: str) -> str:
    return f"{what} may be refused with {', '.join(f'`{code}`' for code in sorted(codes))}."


def _errors(document: Json, operation: Json) -> Iterator[str]:
    """A table of them: those of this operation first."""
    common = frozenset.intersection(*(_codes(one) for one in _paths(document).values()))
    meanings = {code: one["summary"] for code, one in document["components"]["examples"].items()}
    statuses = {code: status for status, codes in _codes_by_status(operation).items() for code in codes}
    yield from ("| code | HTTP | meaning |", "|---|---|---|")
    for code in sorted(statuses, key=lambda code: (code in common, code)):
        yield f"| [`{code}`](errors.md#{code}) | {statuses[code]} | {_cell(meanings[code])} |"


def _body(operation: Json) -> str:
    return _request(operation)["schema"]["$ref"].rsplit("/", 1)[1]


def _named(schemas: Json, *roots: Json) -> list[str]:
    """The objects that these refer to, and those that these are made of."""
    found: list[str] = []
    waiting = list(roots)
    while waiting:
        for name in _references(waiting.pop(0)):
            if name not in found:
                found.append(name)
                waiting.append(schemas[name])
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rsplit("/", 1)[1]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _fields(schema: Json) -> Iterable[str]:
    properties = schema["properties"]
    if not properties:
        return ["No fields."]
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {_type(field)} | {'required' * (name in required)} | {_cell(field.get('description', ''))} |"
        for name, field in properties.items()
    ]
    return ["| field | type | | |", "|---|---|---|---|", *rows]


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#the-{name.lower()}-object)"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(choice) for choice in choices)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else kind


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _shown(title: str, by_name: Mapping[str, Json]) -> Iterator[str]:
    for name, example in by_name.items():
        yield from (f"## {title}" + (f": {name.replace('-', ' ')}" if len(by_name) > 1 else ""), "")
        yield from (*_json(example["value"]), "")


def _json(value: Any) -> tuple[str, ...]:
    return ("```json", json.dumps(value, indent=2, ensure_ascii=False), "```")
