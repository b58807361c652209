"""Serves the viewer on the loopback address until it is interrupted."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from rolecall.errors import UsageError
from rolecall.viewer.runs import Root

LOOPBACK = "127.0.0.1"
TRIED_PORTS = 50


def serve(runs: Path, *, port: int, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the runs below a folder; `port=0` takes a free one. Returns when interrupted."""
    root = open_root(runs)
    try:
        import uvicorn

        from rolecall.viewer.app import make_app
    except ModuleNotFoundError as error:
        raise UsageError(
            f"rolecall view needs the package {error.name!r}, which is not installed; pip install starlette uvicorn"
        ) from None
    listener = listen(port)
    port = listener.getsockname()[1]
    address = f"http://{LOOPBACK}:{port}/"
    app = make_app(root, hosts=hosts(port))
    found = len(root.runs())
    say(f"{address}  ({_counted(found)} in {str(runs)!r}; Ctrl-C ends it)")
    if not found:
        say(f"no run folder below {str(runs)!r} yet; one that appears is shown at once")
    if browser:
        threading.Timer(0.4, webbrowser.open, (address,)).start()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", ws="none"))
    with listener, contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def open_root(runs: Path) -> Root:
    """The folder to view; `UsageError` when it is not there or is a file."""
    if not runs.exists():
        raise UsageError(f"there is no folder {str(runs)!r}; give a run folder, or the folder that holds your runs")
    if not runs.is_dir():
        raise UsageError(f"{str(runs)!r} is a file; give a run folder, or the folder that holds your runs")
    return Root(runs)


def hosts(port: int) -> frozenset[str]:
    """The values of the Host header that mean this server."""
    return frozenset({f"{LOOPBACK}:{port}", f"localhost:{port}"})


def listen(port: int) -> socket.socket:
    """A listening socket on the loopback address; `UsageError` names a free port when this one is in use."""
    try:
        return _bound(port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        taken = "in use" if error.errno == errno.EADDRINUSE else "not allowed"
        raise UsageError(f"port {port} is {taken}; try rolecall view --port {_free_port(port)}") from None


def _bound(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY by it
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((LOOPBACK, port))
        found.listen(128)
    except OSError:
        found.close()
        raise
    return found


def _free_port(port: int) -> int:
    """A port near one that is taken; 0, any, when none is free."""
    for candidate in range(max(port, 1023) + 1, min(max(port, 1023) + TRIED_PORTS, 65535)):
        with contextlib.suppress(OSError):
            _bound(candidate).close()
            return candidate
    return 0


def _counted(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
