"""What an endpoint says in headers and error answers, read with care: anybody may stand at the other end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2


def retry_after(value: str | None) -> float | None:
    """The seconds in a Retry-After header (RFC 9110, 10.2.3: seconds, or a date); None when it has none."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def error_of(response: httpx2.Response) -> Any:
    """What an answer has under "error" (or "message", or "detail"), or None."""
    try:
        data = response.json()
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, Mapping):
        return None
    said = next((data[name] for name in ("error", "message", "detail") if data.get(name)), None)
    return said if isinstance(said, str | Mapping | None) else json.dumps(said)


def error_code(response: httpx2.Response) -> str | None:
    said = error_of(response)
    return str(said.get("code")) if isinstance(said, Mapping) else None


def storable(text: str) -> str:
    """A text that a file can hold: JSON may carry half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def printable(text: str) -> str:
    """A text for a message: what a terminal would obey, or no file can hold, shows as "\ufffd"."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
