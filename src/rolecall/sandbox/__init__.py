"""Untrusted Python in a process of its own that can reach nothing: no network, no files, no other process."""

from rolecall.sandbox.box import Box, BoxLost
from rolecall.sandbox.limits import Job, Limits, Ran
from rolecall.sandbox.protection import Protection, protection
from rolecall.sandbox.tool import run_python

__all__ = ["Box", "BoxLost", "Job", "Limits", "Protection", "Ran", "protection", "run_python"]
