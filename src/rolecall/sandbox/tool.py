"""Python as a tool of a workflow: plain data in, plain data out, so that it can be a recorded effect.

found = await team.effect("python:0", partial(run_python, script))
"""

from __future__ import annotations

from rolecall.sandbox.box import Box
from rolecall.sandbox.limits import Job, Limits

MAX_SHOWN_CHARS = 2000


def run_python(source: str, stdin: str = "", limits: Limits | None = None) -> dict[str, str | bool]:
    """Run a script in a sandbox of its own: `ok`, `output` (its end, where it is long) and `error` (why it did not end
    well). `SandboxError` where programs cannot be contained. Times are left out: a record holds what repeats.

    >>> run_python("print(6 * 7)")
    {'ok': True, 'output': '42\\n', 'error': ''}
    """
    with Box() as box:
        ran = box.run(Job(source=source, stdin=stdin, limits=limits or Limits()))
    error = ran.reason if not ran.killed else f"stopped: more {ran.killed} time than it may use"
    return {"ok": ran.ok, "output": shown(ran.stdout), "error": error}


def shown(text: str) -> str:
    """The end of a long text, with how much is left out."""
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    return f"[{len(text) - MAX_SHOWN_CHARS} characters left out]\n{text[-MAX_SHOWN_CHARS:]}"
