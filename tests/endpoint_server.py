"""A real HTTP server on this machine that speaks the chat-completions protocol, answering from a function."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request: its number from 0, body, headers, and when it came."""

    number: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    at: float

    @property
    def last(self) -> str:
        """What the last message says."""
        return str(self.body["messages"][-1]["content"])


Answer = Response | str | Awaitable[Response | str]


@dataclass(kw_only=True)
class EndpointServer:
    """`answer(asked)` gives a response, or the text of a usual one. `busiest` is the most requests at one time."""

    answer: Callable[[Asked], Answer]
    models: Callable[[], Response] = lambda: JSONResponse({"object": "list", "data": [{"id": "m"}]})
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    busiest: int = 0
    _busy: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        asked = Asked(number=len(self.asked), body=body, headers=dict(request.headers), at=time.monotonic())
        self.asked.append(asked)
        self._busy += 1
        self.busiest = max(self.busiest, self._busy)
        try:
            found = self.answer(asked)
            if inspect.isawaitable(found):
                found = await found
        finally:
            self._busy -= 1
        return found if isinstance(found, Response) else chat(str(found))

    async def list_models(self, request: Request) -> Response:
        return self.models()


def chat(content: str | None, finish_reason: str | None = "stop", **message: Any) -> Response:
    """A usual answer; a token of its count is a word."""
    words = len((content or "").split()) + len(str(message.get("reasoning_content", "")).split())
    return JSONResponse(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": content, **message},
                    "finish_reason": finish_reason,
                }
            ],
            "usage": {"prompt_tokens": 11, "completion_tokens": words, "total_tokens": 11 + words},
        }
    )


def error(status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """An error as endpoints write them."""
    body = {"error": {"message": message, "type": "invalid_request_error", **more}}
    return Response(json.dumps(body), status, dict(headers or {}), "application/json")


@contextmanager
def serve(answer: Callable[[Asked], Answer], **settings: Any) -> Iterator[EndpointServer]:
    """A server in a thread, on a port of its own."""
    found = EndpointServer(answer=answer, **settings)
    routes = [
        Route("/v1/chat/completions", found.complete, methods=["POST"]),
        Route("/v1/models", found.list_models),
    ]
    config = uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        found.port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = time.monotonic() + 10
        while not server.started and time.monotonic() < until:
            time.sleep(0.005)
        assert server.started
        try:
            yield found
        finally:
            server.should_exit = True
            thread.join(timeout=10)


async def hang(seconds: float = 30.0) -> Response:
    """An answer that comes too late."""
    await asyncio.sleep(seconds)
    return chat("late")


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
