"""`python -m rolecall.sandbox.inside.probe UID FOLDER ABI OUTSIDE`: does Landlock hold here? Prints 7 when it does.

It settles as the first process of a sandbox does, then as a program, and tries what each must and must not be able to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rolecall.sandbox.inside import seccomp
from rolecall.sandbox.inside.zygote import settle


def refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except PermissionError:
        return True
    return False


def main() -> None:
    uid, folder, around, outside = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    settle(uid, folder, around)
    seccomp.confine(alone=True)
    import json.tool  # noqa: F401 - the library can be read
    import socket

    with open("written", "w") as file:
        file.write("x")
    os.rename("written", "moved")
    os.remove("moved")
    acts: dict[str, Callable[[], object]] = {
        "reads a file outside": lambda: open(outside).close(),
        "writes a file outside": lambda: open(outside, "a").close(),
        "lists a folder outside": lambda: os.listdir(os.path.dirname(outside)),
        "makes a file outside": lambda: open(f"{outside}-made", "x").close(),
        "changes the library": lambda: open(os.__file__, "r+").close(),
        "changes what others may": lambda: os.chmod(outside, 0o600),
        "opens a socket": socket.socket,
        "forks": os.fork,
    }
    for name, act in acts.items():
        if not refused(act):
            print(f"a program {name}")
            return
    print(7)


if __name__ == "__main__":
    main()
