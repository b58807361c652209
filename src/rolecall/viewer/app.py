"""The web application: pages, their data as JSON, static files, and the rules that keep strangers out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, time
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rolecall.errors import UsageError
from rolecall.viewer.episodes import ORDERS, TRAINING, Query
from rolecall.viewer.metrics import finite
from rolecall.viewer.parts import NotThere, Unreadable
from rolecall.viewer.runs import Root, read_report
from rolecall.viewer.service import Service

PAGES = ("/", "/curves", "/steps", "/episodes", "/episode", "/config")
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; frame-ancestors 'none'"
)
MAX_LIMIT = 500

Params = Mapping[str, str]
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(root: Root, *, hosts: frozenset[str]) -> Starlette:
    """The application over the runs below `root`, for requests that name one of `hosts` (name and port)."""
    service = Service(root)
    static = {
        item.name: item.read_bytes() for item in (files("rolecall.viewer") / "static").iterdir() if item.is_file()
    }
    data: dict[str, Callable[[Request], Any]] = {
        "pulse": lambda r: service.pulse(r.query_params.getlist("run")),
        "runs": lambda r: service.runs(),
        "sparks": lambda r: service.sparks(r.query_params.getlist("run")),
        "run": lambda r: service.run(_need(r, "run")),
        "series": lambda r: service.series(r.query_params.getlist("run"), r.query_params.getlist("key")),
        "steps": lambda r: service.steps(_need(r, "run"), _int(r, "before"), _limit(r, 200)),
        "step": lambda r: service.step(_need(r, "run"), _whole(r, "step")),
        "episodes": lambda r: service.episodes(_need(r, "run"), query_of(r), _int(r, "offset") or 0, _limit(r, 50)),
        "episode": lambda r: service.episode(_need(r, "run"), query_of(r), _need(r, "id")),
        "tokens": lambda r: service.tokens(_need(r, "run"), _source(r), _need(r, "id"), _need(r, "turn")),
        "diff": lambda r: service.diff(_need(r, "run"), _source(r), _need(r, "id"), _need(r, "turn"), _need(r, "base")),
    }
    routes = [Route(path, _page(service, static["index.html"])) for path in PAGES]
    routes += [Route(f"/api/{name}", _data(use)) for name, use in data.items()]
    routes += [Route("/static/{name}", _static(static)), Route("/report", _report(root))]
    handlers: Any = {UsageError: _complain, HTTPException: _refuse}
    return Starlette(routes=routes, middleware=[Middleware(Guard, hosts=hosts)], exception_handlers=handlers)


class Guard:
    """Answers only requests that name this machine's loopback address: a page elsewhere that points a name of its own
    at 127.0.0.1 gets nothing. Data is given to the viewer's own pages only. Every answer carries the policies."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_policies(message["headers"])]
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, guarded)
        else:
            await self.app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> Response | None:
        if headers.get("host", "").lower() not in self.hosts:
            return PlainTextResponse("this viewer answers on its own address only\n", status_code=421)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the viewer only reads; use GET\n", status_code=405)
        strange = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if strange and scope["path"].startswith("/api/"):
            return PlainTextResponse("data is for the viewer's own pages only\n", status_code=403)
        return None


def query_of(request: Request) -> Query:
    """The filter that a URL holds."""
    params = request.query_params
    order = params.get("order", "newest")
    if order not in ORDERS:
        raise UsageError(f"order is {order!r}; wanted one of {', '.join(ORDERS)}")
    team = params.get("team", "")
    if team not in ("", "right", "wrong", "failed"):
        raise UsageError(f"team is {team!r}; wanted right, wrong or failed")
    return Query(
        source=_source(request),
        step_min=_int(request, "step_min"),
        step_max=_int(request, "step_max"),
        outcome=params.get("outcome", ""),
        team=team,
        task=params.get("task", ""),
        role=params.get("role", ""),
        reward_min=_float(request, "reward_min"),
        reward_max=_float(request, "reward_max"),
        text=params.get("text", ""),
        order=order,
    )


def _page(service: Service, shell: bytes) -> Endpoint:
    """The one HTML file of all pages; its status says 404 when the run or the episode of the address is not there."""

    def status(params: Params) -> int:
        try:
            if "run" in params:
                service.root.run(params["run"])
            if "run" in params and "id" in params:
                return 200 if service.has_episode(params["run"], params.get("source", TRAINING), params["id"]) else 404
        except NotThere:
            return 404
        return 200

    async def answer(request: Request) -> Response:
        code = await run_in_threadpool(status, request.query_params)
        return Response(shell, status_code=code, media_type="text/html; charset=utf-8")

    return answer


def _data(use: Callable[[Request], Any]) -> Endpoint:
    async def answer(request: Request) -> Response:
        found = await run_in_threadpool(use, request)
        try:
            text = json.dumps(found, allow_nan=False, separators=(",", ":"), default=_moment)
        except ValueError:
            text = json.dumps(_finite(found), separators=(",", ":"), default=_moment)
        return Response(text, media_type="application/json", headers={"cache-control": "no-store"})

    return answer


def _static(static: Mapping[str, bytes]) -> Endpoint:
    tags = {name: f'"{hashlib.sha256(data).hexdigest()[:20]}"' for name, data in static.items()}

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        suffix = name[name.rfind(".") :]
        if name not in static or suffix not in TYPES:
            raise NotThere(f"the viewer has no file {name!r}")
        headers = {"etag": tags[name], "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(static[name], media_type=TYPES[suffix], headers=headers)

    return answer


def _report(root: Root) -> Endpoint:
    """A run's own report, which holds inline scripts: in a sandbox without an origin, so that it can read nothing."""

    async def answer(request: Request) -> Response:
        page = await run_in_threadpool(lambda: read_report(root.run(_need(request, "run"))))
        return Response(page, media_type="text/html; charset=utf-8", headers={"content-security-policy": REPORT_POLICY})

    return answer


def _policies(given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    named = {name for name, _ in given}
    wanted = {
        b"content-security-policy": PAGE_POLICY.encode(),
        b"x-content-type-options": b"nosniff",
        b"referrer-policy": b"no-referrer",
        b"cross-origin-resource-policy": b"same-origin",
        b"cross-origin-opener-policy": b"same-origin",
    }
    return [(name, value) for name, value in wanted.items() if name not in named]


def _moment(value: Any) -> str:
    """Dates and times of a configuration; anything else that JSON has no word for is a mistake of ours."""
    assert isinstance(value, date | time), type(value)
    return value.isoformat()


def _finite(value: Any) -> Any:
    """The same data with null for numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return finite(value) if isinstance(value, float) else value


async def _complain(request: Request, error: Exception) -> Response:
    code = 404 if isinstance(error, NotThere) else 422 if isinstance(error, Unreadable) else 400
    return Response(json.dumps({"error": str(error)}), status_code=code, media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = f"there is no page {request.url.path}" if error.status_code == 404 else error.detail
    return Response(json.dumps({"error": words}), status_code=error.status_code, media_type="application/json")


def _need(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise UsageError(f"{request.url.path} needs {name}= in its address")
    return value


def _source(request: Request) -> str:
    return request.query_params.get("source") or TRAINING


def _int(request: Request, name: str) -> int | None:
    value = request.query_params.get(name)
    if not value:
        return None
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not 0 <= number < 2**53:
        raise UsageError(f"{name} is {value!r}; wanted a whole number from 0 on")
    return number


def _whole(request: Request, name: str) -> int:
    _need(request, name)
    number = _int(request, name)
    assert number is not None
    return number


def _limit(request: Request, default: int) -> int:
    return min(_int(request, "limit") or default, MAX_LIMIT)


def _float(request: Request, name: str) -> float | None:
    value = request.query_params.get(name)
    if not value:
        return None
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}; wanted a number") from None
