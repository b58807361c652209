"""Programs that try to get out of a sandbox, to harm it, or to be scored right without an answer.

Each is a plain text file of Python, run as an answer whose only right output is a secret that no honest program can
know. `@FOLDER@` is a folder of the host with the secret in `secret.txt`, `@PORT@` a port of the host's loopback with a
listener, `@PID@` the process that grades, `@HOME@` the user's home and `@TOKEN@` a name for files.
"""

from rolecall.sandbox.hostile.catalogue import ATTACKS, Attack

__all__ = ["ATTACKS", "Attack"]
