"""Signed-in browsers: a cookie on pages only, with the rights its token has now."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tertulia.errors import Error
from tertulia.http import Token
from tertulia.http.app import Api
from tertulia.http.errors import error_response
from tests.http.served_gateway import SECRETS, ServedGateway, served_gateway

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def small_pages(api: Api) -> ASGIApp:
    """Return pages that sign in, out, and say who is signed in."""

    async def enter(request: Request) -> Response:
        body = await request.json()
        try:
            if "token" in body:
                browser, secret = await api.cookies.sign_in_by_token(request, body["token"])
            else:
                browser, secret = await api.cookies.sign_in(request, body["code"])
        except Error as problem:
            return error_response(problem)
        response = JSONResponse({"id": browser.id})
        api.cookies.set_cookie(request, response, secret)
        return response

    async def who(request: Request) -> Response:
        try:
            caller = await api.cookies.caller(request)
        except Error as problem:
            return error_response(problem)
        return JSONResponse([caller.name, caller.role])

    return Starlette(routes=[Route("/enter", enter, methods=["POST"]), Route("/who", who)])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    path = tmp_path_factory.mktemp("browsers") / "talk.db"
    with served_gateway(path, pages=small_pages) as gateway:
        yield gateway


def enter(client: httpx2.Client, **body: str) -> Any:
    return client.post("/console/enter", json=body, headers=SAME_ORIGIN)


def test_a_code_signs_a_browser_in_for_pages_only(server: ServedGateway) -> None:
    with server.client("ana") as program, server.client(None) as browser:
        code = program.post("/browsers/codes").json()["code"]
        assert browser.get("/console/who").status_code == 401
        response = enter(browser, code=code)
        assert response.status_code == 200
        assert browser.get("/console/who").json() == ["ana", "member"]
        assert browser.get("/sessions").status_code == 401  # the API does not read the cookie
        assert enter(browser, code=code).status_code == 404
    cookie = SimpleCookie(response.headers["set-cookie"])
    port = server.url.rpartition(":")[2]
    ((name, morsel),) = cookie.items()
    assert name == f"tertulia_{port}"
    assert (morsel["path"], morsel["samesite"], morsel["httponly"]) == ("/console", "strict", True)
    assert morsel["secure"] == ""
    assert int(morsel["max-age"]) == 30 * 86_400
    assert morsel.value not in Path(server.path).read_bytes().decode("latin-1")


def test_cookie_is_secure_behind_tls(server: ServedGateway) -> None:
    with server.client("ana") as program, server.client(None) as browser:
        code = program.post("/browsers/codes").json()["code"]
        headers = {**SAME_ORIGIN, "X-Forwarded-Proto": "https"}
        response = browser.post("/console/enter", json={"code": code}, headers=headers)
    assert "Secure" in response.headers["set-cookie"]


def test_a_token_signs_a_browser_in(server: ServedGateway) -> None:
    with server.client(None) as browser:
        assert enter(browser, token="wrong-0123456789abcdef").status_code == 401
        assert enter(browser, token=SECRETS["eve"]).status_code == 200
        assert browser.get("/console/who").json() == ["eve", "guest"]


def test_five_wrong_codes_lock_the_address_out(server: ServedGateway) -> None:
    with server.client("bob") as program, server.client(None) as browser:
        code = program.post("/browsers/codes").json()["code"]
        statuses = [enter(browser, code="22222222").status_code for _ in range(6)]
        assert statuses == [404] * 5 + [403]
        assert enter(browser, code=code).status_code == 403
        program.post("/browsers/codes")  # only who may sign in anyway can clear the count


def test_other_sites_cannot_sign_in(server: ServedGateway) -> None:
    with server.client("ana") as program, server.client(None) as browser:
        code = program.post("/browsers/codes").json()["code"]
        for headers in ({}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://127.0.0.1:1"}):
            response = browser.post("/console/enter", json={"code": code}, headers=headers)
            assert response.status_code == 403
        response = browser.get("/console/who", headers={"Host": "evil.example"})
        assert response.status_code == 403


def test_sign_out_ends_it_at_the_next_request(server: ServedGateway) -> None:
    with server.client("ana") as ana, server.client("bob") as bob, server.client(None) as browser:
        number = enter(browser, code=ana.post("/browsers/codes").json()["code"]).json()["id"]
        listed = ana.get("/browsers").json()["items"]
        assert number in [item["id"] for item in listed]
        assert {item["name"] for item in listed} == {"ana"}
        assert bob.delete(f"/browsers/{number}").status_code == 404
        assert ana.delete(f"/browsers/{number}").status_code == 204
        assert browser.get("/console/who").status_code == 401


def test_owner_signs_everybody_out(server: ServedGateway) -> None:
    with server.client("root") as root, server.client(None) as browser:
        enter(browser, token=SECRETS["eve"])
        assert root.delete("/browsers").json()["browsers"] >= 1
        assert browser.get("/console/who").status_code == 401


def test_root_leads_to_the_console(server: ServedGateway) -> None:
    with server.client(None) as browser:
        response = browser.get("/", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "/console/")


def test_the_role_is_that_of_the_token_now(tmp_path: Path) -> None:
    path, cookies = tmp_path / "talk.db", httpx2.Cookies()

    def who(*tokens: Token) -> Any:
        with (
            served_gateway(path, pages=small_pages, tokens=tokens) as server,
            server.client(None) as client,
        ):
            if not cookies:
                enter(client, token=SECRETS["ana"])
                cookies.update(client.cookies)
            # Each server has a port of its own, which the name of the cookie contains.
            (secret,) = set(cookies.values())
            port = server.url.rpartition(":")[2]
            headers = {"Cookie": f"tertulia_{port}={secret}"}
            return client.get("/console/who", headers=headers).json()

    ana = Token(name="ana", secret=SECRETS["ana"], role="owner")
    assert who(ana) == ["ana", "owner"]
    assert who(Token(name="ana", secret=SECRETS["ana"], role="guest")) == ["ana", "guest"]
    assert "error" in who(Token(name="bob", secret=SECRETS["bob"]))
