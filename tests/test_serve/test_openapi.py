"""The description of the interface is complete, and every example in it works."""

from __future__ import annotations

import httpx
import pytest

STATUSES = {400, 401, 403, 405, 408, 409, 413, 415, 421, 422, 503}  # as docs/serving.md lists them


def test_paths_are_the_routes(server):
    document = server.client.get("/openapi.json").json()
    described = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    routes = {(route.path, method) for route in server.app.routes for method in route.methods} - {
        (route.path, "HEAD") for route in server.app.routes
    }
    assert described == routes
    assert len(routes) >= 10


@pytest.mark.parametrize("kind", ["model_file", "named_file", "network_file"])
def test_examples_work_and_have_the_models_sizes(serve, request, kind, tmp_path):
    running = serve(request.getfixturevalue(kind), log=f"sqlite:///{tmp_path}/d.db")
    document = running.client.get("/openapi.json").json()
    done = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            given = {} if body is None else {"json": body["example"]}
            answer = running.client.request(method, path, **given)
            assert answer.status_code == 200, (path, answer.text)
            kind_of = answer.headers["content-type"].split(";")[0]
            assert kind_of in operation["responses"]["200"]["content"]
            assert {int(status) for status in operation["responses"]} <= {200, *STATUSES}
            done += 1
    assert done >= 10


def test_nothing_is_fetched_from_elsewhere(server):
    for path in ("/", "/dashboard.js", "/dashboard.css"):
        answer = server.client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert httpx.get(server.url + "/docs").status_code == 404
