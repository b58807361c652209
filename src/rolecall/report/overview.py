"""The first screen: did the team learn, which role did, and is anything wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rolecall.report.chart import INK, share_bar, spark
from rolecall.report.checks import findings
from rolecall.report.curves import role_colours, team_chart
from rolecall.report.findings import Finding
from rolecall.report.forest import Row, change, direction, forest
from rolecall.report.read import RunData, mapping
from rolecall.report.role_findings import late
from rolecall.report.text import DASH, duration, esc, interval, listed, number, percent, plain, points

MAX_OPEN = 5
LEAST_MOVE = 0.0005  # half of what is shown: a tenth of a point
BADGES = {"bad": "!", "look": "?", "note": "i", "fine": "✓"}


def header(run: RunData) -> str:
    """The name of the run and the facts that identify it."""
    config = run.config
    steps = run.steps
    state = '<span class="state">finished</span>' if run.finished else '<span class="state open">no summary yet</span>'
    tokens = mapping(run.summary.get("tokens"))
    facts = [
        ("workflow", mapping(config.get("workflow")).get("name")),
        ("algorithm", mapping(config.get("algorithm")).get("name")),
        ("policies", listed([f"{policy}" for policy in run.policies]) or config.get("sharing")),
        ("model", listed(list(run.models)) or mapping(config.get("model")).get("model")),
        ("seed", config.get("seed")),
        ("steps", f"{steps[-1]} of {config.get('steps', '?')}" if steps else f"0 of {config.get('steps', '?')}"),
        ("time", duration(run.summary.get("wall_s")) if run.finished else None),
        ("tokens trained", plain(tokens.get("trained")) if tokens else None),
    ]
    items = "".join(f"<li>{name} <b>{esc(value)}</b></li>" for name, value in facts if value not in (None, "", DASH))
    return (
        '<header class="top"><div><div class="brand">rolecall report</div>'
        f'<h1>{esc(run.label)}{state}</h1><ul class="facts">{items}</ul></div></header>'
    )


def first_screen(run: RunData) -> str:
    """The answer in a sentence, the figures behind it, and the findings."""
    found = findings(run)
    return (
        f'<section class="first" id="overview"><div><p class="answer">{_answer(run)}</p>'
        f'<p class="lead">{_lead(run)}</p>{forest(_rows(run), _forest_caption(run))}</div>'
        f'<div class="side"><div class="panel"><h2>{_verdict(found)}</h2>{findings_list(found)}</div>'
        f"{team_chart(run)}</div></section>"
        f'<div class="roles">{"".join(_role(run, role) for role in run.roles)}</div>'
    )


def _answer(run: RunData) -> str:
    before, after = mapping(run.sampled("before").get("team")), mapping(run.sampled("after").get("team"))
    if before and after:
        kind = direction(before, after)
        says = {"up": "The team learned", "down": "The team got worse", "same": "No clear change"}[kind]
        was, now = percent(before.get("mean")), percent(after.get("mean"))
        return f'{says}: <span class="nobr">{was} → <span class="{kind}">{now}</span></span> of the held-out tasks'
    validation, training = run.series("validation/team"), run.series("reward/team")
    for name, series in (("validation tasks", validation), ("training tasks", training)):
        if len(series.finite) > 1:
            first, last = percent(series.finite[0]), percent(series.last)
            return f"So far the team went from {first} to {last} of the {name}"
    return "No step is finished yet" if not run.steps else "The run has no accuracy yet"


def _lead(run: RunData) -> str:
    """Which role moved most, and what the team adds."""
    sentences = []
    gains = []
    for role in run.roles:
        before, after = (_accuracy(run, when, role) for when in ("before", "after"))
        if before and after:
            gains.append((number(after.get("mean")) - number(before.get("mean")), role))
    gains = sorted((gain for gain in gains if math.isfinite(gain[0])), key=lambda gain: -abs(gain[0]))
    if len(gains) > 1:
        rest = ", ".join(f"{esc(role)} {points(gain)}" for gain, role in gains[1:])
        moved = f"The <b>{esc(gains[0][1])}</b> moved most: {points(gains[0][0])} points ({rest})."
        still = "No role is right more or less often than before."
        sentences.append(moved if abs(gains[0][0]) >= LEAST_MOVE else still)
    margins = [mapping(run.sampled(when).get("margin")) for when in ("before", "after")]
    if all(margins) and len(run.roles) > 1:
        was, now = (number(one.get("mean")) for one in margins)
        side = "above" if now >= 0 else "below"
        text = f"The team is {100 * abs(now):.1f} points {side} its first answer alone; before training {points(was)}."
        sentences.append(text if math.isfinite(now) else "")
    if not sentences:
        sentences.append("The test set is run before the first step and after the last one.")
    return " ".join(sentences)


def _accuracy(run: RunData, when: str, role: str) -> dict[str, float]:
    return dict(mapping(mapping(mapping(run.sampled(when).get("roles")).get(role)).get("accuracy")))


def _rows(run: RunData) -> list[Row]:
    """Team, greedy, first answer, then every role."""
    rows = []
    sides = {when: mapping(run.before if when == "before" else run.after) for when in ("before", "after")}
    figures = (
        ("team", "sampled", "team", True),
        ("team, greedy", "greedy", "team", False),
        ("first answer", "sampled", "first_answer", False),
    )
    for label, block, name, strong in figures:
        both = [mapping(mapping(sides[when].get(block)).get(name)) or None for when in ("before", "after")]
        note = "no other role after it" if name == "first_answer" else ""
        rows.append(Row(label=label, colour=INK, before=both[0], after=both[1], strong=strong, note=note))
    k = max((int(number(run.sampled(when).get("k")) or 1) for when in sides if run.sampled(when).get("k")), default=1)
    for name in ("pass_at_k", "majority_at_k") if k > 1 else ():
        both = [mapping(run.sampled(when).get(name)) or None for when in sides]
        rows.append(Row(label=name.replace("_at_k", f"@{k}"), colour=INK, before=both[0], after=both[1]))
    for role, colour_class in role_colours(run).items():
        before, after = (_accuracy(run, when, role) or None for when in sides)
        counted = " → ".join(plain(one.get("n")) for one in (before, after) if one)
        note = f"{counted} turns" if counted else ""
        rows.append(Row(label=role, colour=colour_class, before=before, after=after, note=note))
    return rows


def _forest_caption(run: RunData) -> str:
    tasks = mapping(run.sampled("after").get("team") or run.sampled("before").get("team")).get("num_tasks")
    step = mapping(run.after).get("step")
    which = f" After: the checkpoint of step {step}." if step is not None else ""
    asked = f"On {plain(tasks)} test tasks that were never trained on." if tasks else ""
    return f"{asked}{which} A role is measured on what it was given, and that changes as earlier roles learn.".strip()


def _verdict(found: Sequence[Finding]) -> str:
    bad, look = (sum(one.level == level for one in found) for level in ("bad", "look"))
    if bad:
        return f"{bad} {'thing is' if bad == 1 else 'things are'} wrong" + (f", {look} to look at" if look else "")
    if look:
        return f"{look} {'thing' if look == 1 else 'things'} to look at"
    return "Nothing looks wrong"


def findings_list(found: Sequence[Finding]) -> str:
    """What is wrong stands open; what was checked and is fine is folded away."""
    open_ones = [one for one in found if one.level != "fine"]
    fine = [one for one in found if one.level == "fine"]
    num_open = max(MAX_OPEN, sum(one.level == "bad" for one in found))
    parts = [f'<ul class="findings">{"".join(map(_finding, open_ones[:num_open]))}</ul>'] if open_ones else []
    if len(open_ones) > num_open:
        more = "".join(map(_finding, open_ones[num_open:]))
        summary = f"{len(open_ones) - num_open} more to look at"
        parts.append(f'<details><summary>{summary}</summary><ul class="findings">{more}</ul></details>')
    if fine:
        summary = f"{len(fine)} {'check' if len(fine) == 1 else 'checks'} passed"
        items = "".join(map(_finding, fine))
        parts.append(f'<details><summary>{summary}</summary><ul class="findings passed">{items}</ul></details>')
    return "".join(parts) or '<p class="gone">There is nothing to check yet.</p>'


def _finding(one: Finding) -> str:
    text = f"<p>{esc(one.text)}</p>" if one.text else ""
    return (
        f'<li class="{one.level}"><span class="badge" aria-hidden="true">{BADGES[one.level]}</span>'
        f"<b>{esc(one.title)}</b>{text}</li>"
    )


def _role(run: RunData, role: str) -> str:
    """One role: accuracy before and after, its reward over the run, its share of what moves the weights."""
    colour_class = role_colours(run)[role]
    before, after = (_accuracy(run, when, role) for when in ("before", "after"))
    shown, under = DASH, ""
    reward = run.series(f"reward/{role}/total")
    if after:
        was = f"{percent(before.get('mean'))} → " if before else ""
        shown, under = f"{was}{percent(after.get('mean'))}", f"{interval(after)} {change(before, after)}"
    elif reward:
        shown, under = plain(reward.last), "mean reward in the last step"
    facts = []
    shares = {"gradient mass": "dynamics/{}/mass_share", "advantage mass": "credit/{}/advantage_mass_share"}
    if run.alone(role):
        del shares["gradient mass"]
    for name, key in shares.items():
        share = late(run, key.format(role))
        if share is not None:
            facts.append(f"<dt>{name}</dt><dd>{share_bar(share, colour_class)}</dd>")
    for name, key in (("tokens a reply", "behaviour/{}/length"), ("turns a step", "behaviour/{}/num_turns")):
        value = late(run, key.format(role))
        if value is not None:
            facts.append(f"<dt>{name}</dt><dd>{plain(value)}</dd>")
    policy = run.roles[role]
    trained = "" if role in run.trained_roles else ", not trained"
    return (
        f'<div class="panel role {colour_class}"><h3>{esc(role)}<small>{esc(f"policy {policy}" if policy else "")}'
        f'{trained}</small></h3><p class="big">{shown}</p><small class="under">{under}</small>'
        f"{_spark(run, role)}<dl>{''.join(facts)}</dl></div>"
    )


def _spark(run: RunData, role: str) -> str:
    drawn = spark(run.series(f"reward/{role}/total"), role_colours(run)[role], f"reward of {role}")
    return f'{drawn}<small class="under">reward, first to last step</small>' if drawn else ""
