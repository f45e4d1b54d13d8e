"""Whose requests the explore page answers: those of its own pages on this machine."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from figura.commands.explore.page import OwnPagesOnly

OWN = {"host": "127.0.0.1:8080"}
FOREIGN = [
    {"host": "evil.example"},  # a name that points to this machine
    {"host": "127.0.0.1.evil.example:8080"},
    {"host": "[::1"},
    {},
    OWN | {"origin": "http://evil.example"},
    OWN | {"origin": "null"},  # a frame that its site has shut in
    OWN | {"origin": "file://"},
    OWN | {"origin": "http://127.0.0.1:3000"},  # another program of this machine
    OWN | {"origin": "https://127.0.0.1:8080"},
    OWN | {"origin": "http://[::1"},
    OWN | {"sec-fetch-site": "cross-site"},  # a picture or a link there, which have no origin
]
ALLOWED = [
    OWN,
    {"host": "localhost"},
    {"host": "localhost:9000", "origin": "http://localhost:9000"},  # through SSH, at another port
    OWN | {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"},
]


def answers(kind: str, headers: dict[str, str]) -> list[dict]:
    """Return what the page sends to a request with these headers."""
    sent: list[dict] = []

    async def page(scope, receive, send):
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
        else:
            await PlainTextResponse("the page")(scope, receive, send)

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": "GET", "path": "/", "headers": raw}
    asyncio.run(OwnPagesOnly(page)(scope, receive, send))
    return sent


@pytest.mark.parametrize("headers", FOREIGN)
def test_other_sites_are_refused(headers: dict[str, str]) -> None:
    start, body = answers("http", headers)
    assert start["status"] == 403
    assert b"the page" not in body["body"]
    assert answers("websocket", headers) == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("headers", ALLOWED)
def test_own_pages_are_answered_and_are_in_no_frame(headers: dict[str, str]) -> None:
    start, body = answers("http", headers)
    assert (start["status"], body["body"]) == (200, b"the page")
    assert (b"content-security-policy", b"frame-ancestors 'self'") in start["headers"]
    assert answers("websocket", headers) == [{"type": "websocket.accept"}]
