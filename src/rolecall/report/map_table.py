"""Tables of a map: text that is escaped here, figures with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rolecall.report.map_data import Figure
from rolecall.report.text import DASH, esc, percent


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain text, its first column heads of rows; "" without rows."""
    if not rows:
        return ""
    top = "".join(f'<th scope="col">{esc(one)}</th>' for one in head)
    body = "".join(
        f'<tr><th scope="row">{esc(first)}</th>{"".join(f"<td>{esc(one)}</td>" for one in rest)}</tr>'
        for first, *rest in rows
    )
    return f'<div class="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def terms(words: Mapping[str, str]) -> str:
    """What the columns of a table are, to stand below it."""
    return (
        f'<dl class="terms">{"".join(f"<dt>{esc(name)}</dt><dd>{esc(text)}</dd>" for name, text in words.items())}</dl>'
    )


def span(figure: Figure, show: Callable[[float], str] = percent) -> str:
    """`[low, high]`; "" where there is no interval."""
    known = math.isfinite(figure.low) and math.isfinite(figure.high)
    return f"[{show(figure.low)}, {show(figure.high)}]" if known else ""


def shown(figure: Figure, show: Callable[[float], str] = percent) -> str:
    """The figure and its interval; a dash where it is not known."""
    return f"{show(figure.mean)} {span(figure, show)}".strip() if figure.known else DASH
