"""`python -m docs`: writes docs/reference.md, the API reference, from the OpenAPI document that the service serves."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from dealer_server.api.openapi import generator
from dealer_server.api.routes import ROUTES

REFERENCE = Path(__file__).parent / "reference.md"
PREFIX = "/open-api/v1"
Json = dict[str, Any]
HEAD = """# API reference

Written by `make docs` from the service's OpenAPI document, which `GET {base_url}/openapi.json` answers whole, with
examples. How calls are signed, retried and refused: [specification.md](specification.md).
"""


def document() -> Json:
    """Raises generator.Incomplete, which names the route and what it lacks."""
    generator.require_complete(ROUTES)
    return json.loads(msgspec.json.encode(generator.document(ROUTES, base_url="https://api.example.com", version="1")))


def reference(document: Json) -> str:
    """In Markdown: every operation, then every object that calls and answers are made of."""
    schemas = document["components"]["schemas"]
    paths = {path.removeprefix(PREFIX): item["post"] for path, item in document["paths"].items()}
    common = frozenset.intersection(*(_codes(operation) for operation in paths.values()))
    lines = [
        HEAD,
        "## Operations",
        "",
        f"Each is called by `POST {{base_url}}{PREFIX}/…`. {_refused(common, 'Any call')}",
    ]
    for path, operation in paths.items():
        lines += _operation(path, operation, schemas, _codes(operation) - common)
    lines += ["", "## Objects"]
    sent = {_body(operation) for operation in paths.values()}
    for name, schema in schemas.items():
        if name != "Refusal" and name not in sent:
            lines += ["", f"### The {name} object", "", *_fields(schema)]
    return "\n".join(lines) + "\n"


def _operation(path: str, operation: Json, schemas: Json, codes: frozenset[str]) -> Iterable[str]:
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["data"]
    yield from ("", f"### {path}", "", f"{operation['summary']}. {operation['description']}", "")
    yield from _fields(schemas[_body(operation)])
    yield from ("", f"Answers {_type(answer)}. {_refused(codes, 'It') if codes else ''}".rstrip())


def _codes(operation: Json) -> frozenset[str]:
    refusals = [response for status, response in operation["responses"].items() if status != "200"]
    bodies = [response["content"]["application/json"]["schema"]["allOf"] for response in refusals]
    return frozenset(code for _, body in bodies for code in body["properties"]["code"]["enum"])


def _refused(codes: Iterable[str], what: str) -> str:
    return f"{what} may be refused with {', '.join(f'`{code}`' for code in sorted(codes))}."


def _body(operation: Json) -> str:
    return operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]


def _fields(schema: Json) -> Iterable[str]:
    properties = schema["properties"]
    if not properties:
        return ["No fields."]
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {_type(field)} | {'yes' if name in required else ''} | {_cell(field.get('description', ''))} |"
        for name, field in properties.items()
    ]
    return ["| field | type | required | |", "|---|---|---|---|", *rows]


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


if __name__ == "__main__":
    REFERENCE.write_text(reference(document()))
    print(f"wrote {REFERENCE}")
