"""The OpenAPI document is true. schemathesis runs over it in test_openapi_fuzz.py."""

from starter.api.body_limit import LARGEST_BODY
from tests.api.world import NOBODY, Api, Person


async def test_every_error_is_declared(api: Api) -> None:
    """Every operation declares its errors in our shape, with the framework's own shape nowhere."""
    document = (await api("GET", "/api/openapi.json")).json
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            statuses = set(operation["responses"])
            if path == "/health/live":
                continue
            assert "503" in statuses, (method, path)
            if operation.get("security"):
                assert "401" in statuses, (method, path)
            if "requestBody" in operation:
                assert statuses >= {"400", "422"}, (method, path)
            if method not in {"get", "head"}:
                assert statuses >= {"403", "408", "413", "415"}, (method, path)
            for status, response in operation["responses"].items():
                if status >= "400" and path != "/health/ready":
                    schema = response["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (method, path, status)


async def test_a_body_that_nobody_asked_for(api: Api, alice: Person) -> None:
    """Routes that take none refuse a bad one all the same, and say so in the document."""
    document = (await api("GET", "/api/openapi.json")).json
    checked = 0
    for path, item in document["paths"].items():
        for method in set(item) - {"get"}:
            named = path.format(workspace_id=NOBODY, token_id=NOBODY, user_id=NOBODY, node="nowhere")
            wrong = await alice(method.upper(), named, {}, Content_Type="text/plain", Sec_Fetch_Site="same-origin")
            large = await alice(method.upper(), named, {"x": "x" * LARGEST_BODY})
            assert (wrong.status, large.status) == (415, 413), (method, path)
            assert {"413", "415"} <= set(item[method]["responses"])
            checked += "requestBody" not in item[method]
    assert checked >= 4


async def test_security_schemes(api: Api) -> None:
    """Whoever reads the document knows how to log in; only login, logout and health need nothing."""
    document = (await api("GET", "/api/openapi.json")).json
    schemes = document["components"]["securitySchemes"]
    assert {(name, scheme["type"]) for name, scheme in schemes.items()} == {
        ("session", "apiKey"),
        ("secure_session", "apiKey"),
        ("token", "http"),
    }
    open_to_all = {path for path, item in document["paths"].items() for one in item.values() if not one.get("security")}
    assert open_to_all == {
        *("/api/v1/login", "/api/v1/logout"),
        *("/health/live", "/health/ready", "/health/coordinator"),
    }


async def test_no_pages_of_other_hosts(api: Api, alice: Person) -> None:
    """No page that would load scripts from elsewhere."""
    for path in ("/docs", "/redoc", "/api/docs", "/docs/oauth2-redirect"):
        assert (await alice("GET", path)).status == 404
