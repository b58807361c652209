"""Text for a page: everything escaped, control characters made visible, numbers as people read them."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 4000
KEPT_END = 800
DASH = "–"

_BIDI = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_HIDDEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff{_BIDI}\ud800-\udfff\ufffe\uffff]")


def visible(text: str) -> str:
    """The text with control characters, marks of direction and lone surrogates shown instead of obeyed.

    >>> visible("a\\x00b\\u202ec")
    'a⟨U+0000⟩b⟨U+202E⟩c'
    """
    return _HIDDEN.sub(lambda match: f"⟨U+{ord(match.group()):04X}⟩", text)


def esc(value: Any) -> str:
    """A value as safe text for HTML, also inside a quoted attribute.

    >>> esc('</style><script>alert("1")')
    '&lt;/style&gt;&lt;script&gt;alert(&quot;1&quot;)'
    """
    return html.escape(visible(str(value)), quote=True)


def cut(text: str, limit: int = MAX_TEXT, end: int = KEPT_END) -> tuple[str, int]:
    """The text, or its beginning and its end with the number of characters left out between them."""
    if len(text) <= limit:
        return text, 0
    left_out = len(text) - limit
    return f"{text[: limit - end]}\n[… {left_out:,} characters left out …]\n{text[-end:]}", left_out


def number(value: Any) -> float:
    """The value as a float; NaN for anything that is not a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def percent(value: Any, digits: int = 1) -> str:
    """`48.8 %`; a dash when there is no number.

    >>> percent(0.488), percent(None)
    ('48.8\\u202f%', '–')
    """
    value = number(value)
    return f"{100 * value:.{digits}f}\u202f%" if math.isfinite(value) else DASH


def points(value: Any) -> str:
    """A difference of two shares in points: `+37.0`, with a true minus sign, which what rounds to 0 does not have.

    >>> points(-0.031), points(-1e-9)
    ('−3.1', '+0.0')
    """
    value = number(value)
    if not math.isfinite(value):
        return DASH
    return f"{round(100 * value, 1) + 0.0:+.1f}".replace("-", "−")


def plain(value: Any) -> str:
    """A number in as few characters as it needs: `0`, `0.297`, `12.3`, `10,408`, `1.4·10⁻⁵`."""
    value = number(value)
    if not math.isfinite(value):
        return DASH
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3:
        mantissa, _, power = f"{value:.1e}".partition("e")
        return f"{mantissa.replace('-', '−')}·10{str(int(power)).translate(_RAISED)}"
    elif size >= 1000 or value == int(value):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{2 - math.floor(math.log10(size))}f}" if size < 100 else f"{value:.1f}"
    return text.replace("-", "−")


def tick(value: float) -> str:
    """A round number at an axis, without zeros at its end."""
    return plain(value).replace(".0·", "·") if value and abs(value) < 1e-3 else f"{value:,.6g}".replace("-", "−")


def duration(seconds: Any) -> str:
    """`1 min 51 s`, `2 h 03 min`, `45 s`."""
    seconds = number(seconds)
    if not math.isfinite(seconds):
        return DASH
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    if hours:
        return f"{hours} h {rest // 60:02d} min"
    return f"{rest // 60} min {rest % 60:02d} s" if rest >= 60 else f"{rest} s"


def interval(estimate: Mapping[str, Any] | None) -> str:
    """`[44.4, 53.2]` in percent; empty without one."""
    if not estimate:
        return ""
    low, high = number(estimate.get("low")), number(estimate.get("high"))
    if not math.isfinite(low) or not math.isfinite(high):
        return ""
    return f"[{100 * low:.1f}, {100 * high:.1f}]".replace("-", "−")


def show(value: Any, kind: str) -> str:
    """A value of a metric: `rate` in percent, anything else as a plain number."""
    return percent(value) if kind == "rate" else plain(value)


def words(name: str) -> str:
    """A key as words: `first_answer` -> `first answer`."""
    return name.replace("_", " ")


def listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
