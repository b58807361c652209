"""One page from one or several runs: nothing outside it is loaded, and nothing in it is trusted."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from rolecall.report.catalogue import BEHAVIOUR, DRIFT, GRADIENTS, LEARNING, POLICIES
from rolecall.report.compare import comparison, comparison_header
from rolecall.report.curves import (
    charts,
    cosine_charts,
    role_colours,
    same_curves,
    team_charts,
    unseen,
)
from rolecall.report.episode_view import groups_html
from rolecall.report.episodes import Group
from rolecall.report.overview import first_screen, header
from rolecall.report.read import RunData
from rolecall.report.script import SCRIPT
from rolecall.report.style import CSS
from rolecall.report.tables import every_metric, outcomes, role_figures, settings, times
from rolecall.report.text import esc

SECTIONS = (
    ("overview", "Overview"),
    ("learning", "Learning"),
    ("gradients", "Gradients"),
    ("behaviour", "Behaviour"),
    ("episodes", "Episodes"),
    ("outcomes", "Outcomes"),
    ("configuration", "Configuration"),
    ("metrics", "Metrics"),
)


def page(runs: Sequence[RunData], groups: Sequence[Sequence[Group]]) -> str:
    """The page; `groups` holds the episodes to show of each run."""
    top = header(runs[0]) + _nav() if len(runs) == 1 else comparison_header(runs) + _nav()
    overview = first_screen(runs[0]) if len(runs) == 1 else comparison(runs)
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} runs"
    sections = (_learning(runs), _gradients(runs), _behaviour(runs), _episodes(runs, groups), _rest(runs))
    body = overview + "".join(sections)
    return frame(title, top, body)


def frame(title: str, top: str, body: str, css: str = "") -> str:
    """A whole page around a header and sections, with the report's style and script."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{esc(title)} · rolecall report</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        f"<style>{CSS}{css}</style></head><body>{top}<main>{body}"
        "<footer>Made by rolecall from the files of the run folder. Accuracy intervals are 95 %, clustered by task."
        f"</footer></main><script>{SCRIPT}</script></body></html>\n"
    )


def _policy() -> str:
    """Only the page's own style and its one script, by its hash: text of an episode could not run or load anything."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    own = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _nav() -> str:
    links = "".join(f'<li><a href="#{name}">{label}</a></li>' for name, label in SECTIONS)
    return f'<nav aria-label="sections"><ul>{links}</ul></nav>'


def _section(name: str, title: str, words: str, body: str) -> str:
    return f'<section id="{name}"><h2>{title}</h2><p>{words}</p>{body}</section>'


def _aside(words: str) -> str:
    return f'<p class="gone">{esc(words)}</p>' if words else ""


def _or_none(body: str, what: str) -> str:
    return f'<div class="charts">{body}</div>' if body else f'<p class="gone">{what}</p>'


def _learning(runs: Sequence[RunData]) -> str:
    team = team_charts(runs) if len(runs) > 1 else ""
    body = f'<div class="charts two">{team}</div><h3>By role</h3>' if team else ""
    reward, accuracy, *rest = LEARNING
    twice = all(same_curves(run, reward.key, accuracy.key) for run in runs)
    body += _or_none(charts(runs, (reward, *rest) if twice else LEARNING), "No reward is recorded yet.")
    body += _aside("The reward of every role is its accuracy, drawn once." if twice and runs[0].metrics else "")
    return _section(
        "learning", "Learning curves", "What the team and each role earned, on training and validation tasks.", body
    )


def _gradients(runs: Sequence[RunData]) -> str:
    drawn = charts(runs, GRADIENTS[:2]) + cosine_charts(runs) + charts(runs, GRADIENTS[2:])
    body = _or_none(drawn, "No gradient of a role is recorded yet.") + _aside(unseen(runs, GRADIENTS))
    drift = charts(runs, DRIFT)
    if drift:
        body += f'<h3>Drift and exploration</h3><div class="charts">{drift}</div>{_aside(unseen(runs, DRIFT))}'
    policies = charts(runs, POLICIES, of="policies")
    if policies:
        body += f'<h3>By policy</h3><div class="charts">{policies}</div>'
    body += _aside(unseen(runs, POLICIES, of="policies"))
    return _section(
        "gradients",
        "Gradients and credit",
        "Which role moves the weights, and whether the roles pull the same way. Shares and cosines are within one "
        "policy; norms of different policies are not comparable in scale.",
        body,
    )


def _behaviour(runs: Sequence[RunData]) -> str:
    body = _or_none(charts(runs, BEHAVIOUR), "No behaviour is recorded yet.")
    body += _aside(unseen(runs, BEHAVIOUR))
    figures = role_figures(runs[0]) if len(runs) == 1 else ""
    if figures:
        body += f"<details><summary>Every figure of the test set, with intervals</summary>{figures}</details>"
    return _section("behaviour", "What each role does", "In training, step by step.", body)


def _episodes(runs: Sequence[RunData], groups: Sequence[Sequence[Group]]) -> str:
    parts = []
    for run, own in zip(runs, groups, strict=True):
        shown = groups_html(own, role_colours(run)) if own else '<p class="gone">No episode is in the folder yet.</p>'
        if len(runs) > 1:
            shown = f"<details><summary>{esc(run.label)}</summary>{shown}</details>"
        parts.append(shown)
    return _section(
        "episodes",
        "Episodes",
        "Whole episodes as they were recorded: prompt, reply, what it claims, and in training what it was paid. "
        "Evaluations pay nothing.",
        "".join(parts),
    )


def _rest(runs: Sequence[RunData]) -> str:
    ends = _section("outcomes", "How episodes ended", "Every episode ends in one class.", outcomes(runs) + times(runs))
    config = settings(runs, "config", "configuration")
    words = "Resolved: every setting, with its default." if len(runs) == 1 else "What differs stands first."
    setting = _section("configuration", "Configuration", words, config)
    setting += f'<section id="environment"><h3>Environment</h3>{settings(runs, "environment", "environment")}</section>'
    tables = "".join(
        f"<details><summary>{esc(run.label)}: {len(run.metrics)} metrics</summary>{every_metric(run)}</details>"
        for run in runs
    )
    return ends + setting + _section("metrics", "Every metric", "First, last, least and most of each key.", tables)
