"""docs/api.md, from the OpenAPI document of the running code. `python -m tests.docs.api_document` writes it."""

from pathlib import Path
from typing import Any, cast

from starter.api.app import create_app
from starter.api.dependencies import ApiConfig, assemble

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"
_METHODS = ("get", "post", "put", "patch", "delete")

_HEAD = """# API

Generated from the OpenAPI document (`python -m tests.docs.api_document`), which a running codehub serves at
`/api/openapi.json`. Beside these routes there are `/w/{id}/…` (the proxy to a workspace), `/` (the dashboard) and
`/metrics` (Prometheus; METRICS_TOKEN, or an admin).

Every error is `{"error": {"code", "message"}}`: the code for programs, the message for people. Requests are
authenticated by the session cookie that `POST /api/v1/login` sets, or by `Authorization: Bearer chub_…` with a token
from `POST /api/v1/tokens`. Unsafe requests by cookie need the same origin. Bodies are JSON, at most 1 MiB.
"""


def document() -> dict[str, Any]:
    nothing = cast("Any", None)
    deps = assemble(ApiConfig(default_image="image"), nothing, nothing, nothing)
    return create_app(deps).openapi()


def text() -> str:
    api = document()
    parts = [_HEAD]
    tag = None
    for path, method, operation in _operations(api):
        if operation["tags"][0] != tag:
            tag = operation["tags"][0]
            parts.append(f"## {tag.capitalize()}\n")
        parts.append(_operation(path, method, operation))
    parts.append("## Bodies\n")
    parts += [_schema(name, schema) for name, schema in sorted(api["components"]["schemas"].items())]
    return "\n".join(parts)


def _operations(api: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    found = [
        (path, method, item[method]) for path, item in api["paths"].items() for method in _METHODS if method in item
    ]
    order = list(dict.fromkeys(operation["tags"][0] for _, _, operation in found))
    return sorted(found, key=lambda one: order.index(one[2]["tags"][0]))


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    lines = [f"### `{method.upper()} {path}`\n"]
    if operation.get("description"):
        lines.append(f"{operation['description'].strip()}\n")
    given = [one for one in operation.get("parameters", []) if one["in"] != "path" and one["in"] != "cookie"]
    if given:
        lines += ["| parameter | in | type | |", "|---|---|---|---|"]
        lines += [
            f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {_cell(one.get('description'))} |"
            for one in given
        ]
        lines.append("")
    body = operation.get("requestBody")
    if body:
        lines.append(f"Body: {_type(body['content']['application/json']['schema'])}\n")
    answers = [
        f"{status} {_answer(answer)}".strip()
        for status, answer in sorted(operation["responses"].items())
        if not status.startswith(("4", "5"))
    ]
    refused = [status for status in sorted(operation["responses"]) if status.startswith(("4", "5"))]
    lines.append(f"Answers: {', '.join(answers)}{'; refuses with ' + ', '.join(refused) if refused else ''}.\n")
    return "\n".join(lines)


def _answer(answer: dict[str, Any]) -> str:
    content = answer.get("content", {})
    for kind, body in content.items():
        return _type(body.get("schema", {})) if kind == "application/json" else f"`{kind}`"
    return ""


def _schema(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}\n"]
    if schema.get("description"):
        lines.append(f"{schema['description'].strip()}\n")
    if "enum" in schema:
        return "\n".join([*lines, ", ".join(f"`{value}`" for value in schema["enum"]) + "\n"])
    required = set(schema.get("required", []))
    lines += ["| field | type | |", "|---|---|---|"]
    for field, value in schema.get("properties", {}).items():
        mark = "" if field in required else " (optional)"
        lines.append(f"| `{field}`{mark} | {_type(value)} | {_cell(value.get('description'))} |")
    return "\n".join([*lines, ""])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    kind = schema.get("format") or schema.get("type", "anything")
    return {"date-time": "time", "uuid": "id", "object": "object", "null": "null"}.get(kind, str(kind))


def _cell(words: str | None) -> str:
    return " ".join((words or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(text())
