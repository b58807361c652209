"""A grader process: `python -m rolecall.grading.worker FD MEMORY_MIB`, started and killed by a `GraderPool`.

It reads jobs from the socket FD, one at a time: `("load", name)` imports a grader, `("grade", name, answer, task,
limit_s)` runs one. It ends when the socket closes. Should its pool be gone while a grader hangs, an alarm whose
default action ends the process stands behind the pool's own deadline.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import socket
import sys

from rolecall.errors import GraderError, boundary
from rolecall.grading.graders import Grader, apply_grader, load_grader
from rolecall.grading.wire import WorkerGone, receive, send

MAX_DETAIL_CHARS = 500
MAX_LOAD_DETAIL_CHARS = 20_000
ALARM_GRACE_S = 10.0


def serve(sock: socket.socket) -> None:
    """Answer jobs until the pool goes away."""
    graders: dict[str, Grader] = {}
    while True:
        try:
            job = pickle.loads(receive(sock))
        except WorkerGone:
            return
        if job[0] == "load":
            reply = _load(job[1], graders)
        else:
            _, name, answer, task, limit_s = job
            reply = _grade(graders[name], name, answer, task, limit_s)
        send(sock, json.dumps(reply).encode())


def _load(name: str, graders: dict[str, Grader]) -> dict[str, object]:
    try:
        with boundary(GraderError, f"loading grader {name!r}"):
            graders[name] = load_grader(name)
    except GraderError as error:
        return {"error": str(error)[-MAX_LOAD_DETAIL_CHARS:]}
    return {"error": ""}


def _grade(grader: Grader, name: str, answer: str, task: bytes, limit_s: float) -> dict[str, object]:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s + ALARM_GRACE_S)
    grade = apply_grader(grader, name, answer, pickle.loads(task))
    signal.setitimer(signal.ITIMER_REAL, 0)
    detail = grade.detail if len(grade.detail) <= MAX_DETAIL_CHARS else grade.detail[:MAX_DETAIL_CHARS] + "..."
    return {"status": grade.status.value, "score": grade.score, "detail": detail}


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(sock.fileno(), False)  # a grader's own children must not hold the socket open
    if (memory := int(sys.argv[2]) << 20) > 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sock)


if __name__ == "__main__":
    main()
