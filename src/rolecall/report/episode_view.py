"""An episode as a card: every turn with its prompt, what it replied, what that claims, and what it was paid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rolecall.report.episodes import MAX_TURNS, Group, Shown
from rolecall.report.read import context_of, mapping, turns_of
from rolecall.report.text import cut, esc, number, plain, words

OPEN_PROMPT = 240
ELSEWHERE = '<div class="pay"><span>on the path: counted and trained as a candidate of its own</span></div>'


def groups_html(groups: Sequence[Group], colours: Mapping[str, str]) -> str:
    """All groups, one under the other; the largest advantage of a group sets the scale of its bars."""
    return "".join(_group(group, colours) for group in groups)


def _group(group: Group, colours: Mapping[str, str]) -> str:
    sizes = [abs(number(a)) for one in group.shown for a in mapping(one.record.get("advantages")).values()]
    top = max((size for size in sizes if math.isfinite(size)), default=0.0)
    task = mapping(mapping(mapping(group.shown[0].record.get("graded")).get("episode")).get("task"))
    heading = f"<h3>{esc(group.title)}</h3>" if group.title else ""
    question, _ = cut(str(task.get("question", "")), 600, 120)
    answer = task.get("answer")
    wanted = f", wanted <b>{esc(cut(str(answer), 200, 40)[0])}</b>" if answer is not None else ""
    cards = "".join(_episode(one, colours, top) for one in group.shown)
    return (
        f'{heading}<p class="gone" dir="auto">Task <code>{esc(cut(str(task.get("id", "")), 120, 30)[0])}</code>: '
        f'{esc(question)}{wanted}</p><div class="pair">{cards}</div>'
    )


def _episode(shown: Shown, colours: Mapping[str, str], top: float) -> str:
    graded = mapping(shown.record.get("graded"))
    episode = mapping(graded.get("episode"))
    context = context_of(shown.record)
    turns = [*context, *turns_of(shown.record)]
    elsewhere = {id(turn) for turn in context}
    names = {str(turn.get("id")): _name(turn) for turn in turns}
    status = str(mapping(graded.get("team")).get("status", "?"))
    tag = {"right": ("won", "won"), "wrong": ("lost", "lost")}.get(status, ("odd", f"grade {status}"))
    answer = mapping(episode.get("outcome")).get("answer")
    said = f"answered {esc(cut(str(answer), 200, 40)[0])}" if answer is not None else "no answer"
    outcome = str(episode.get("outcome_class", shown.row.outcome))
    odd = f'<span class="tag odd">{esc(outcome)}</span>' if outcome != "ok" else ""
    failure = mapping(episode.get("failure"))
    why = f"<p>{esc(cut(str(failure.get('detail', '')), 600, 120)[0])}</p>" if failure else ""
    more = f'<p class="gone">{len(turns) - MAX_TURNS} more turns are left out.</p>' if len(turns) > MAX_TURNS else ""
    body = "".join(
        _turn(turn, shown.record, names, colours, top, elsewhere=id(turn) in elsewhere) for turn in turns[:MAX_TURNS]
    )
    return (
        f'<article class="episode"><header><h4>{esc(shown.heading)}</h4><span class="tag {tag[0]}">{esc(tag[1])}</span>'
        f'{odd}<span dir="auto">{said}</span></header>{why}<ol class="turns">{body}</ol>{more}</article>'
    )


def _name(turn: Mapping[str, Any]) -> str:
    """For people: the role, its copy when there are several, and its how-manieth call from 1."""
    role, copy, call = turn["key"]
    return f"{role}{f' copy {copy}' if copy else ''}{f' ({_count(call)} call)' if call else ''}"


def _count(call: Any) -> str:
    return {1: "2nd", 2: "3rd"}.get(call, f"{int(number(call)) + 1}th" if math.isfinite(number(call)) else "?")


def _turn(
    turn: Mapping[str, Any],
    record: Mapping[str, Any],
    names: Mapping[str, str],
    colours: Mapping[str, str],
    top: float,
    *,
    elsewhere: bool = False,
) -> str:
    """One turn; `elsewhere`: it is on the path, and counted and trained as a candidate of its own."""
    completion = mapping(turn.get("completion"))
    tokens = completion.get("token_ids")
    wrote = mapping(completion.get("endpoint"))
    counted = number(wrote.get("num_tokens")) if wrote else len(tokens) if isinstance(tokens, list) else 0
    num_tokens = int(counted) if math.isfinite(counted) else 0
    stop = str(completion.get("stop", ""))
    about = names.get(str(turn.get("about")))
    facts = [f"{num_tokens:,} {'token' if num_tokens == 1 else 'tokens'}", *([f"about {about}"] if about else [])]
    cut_off = f'<span class="tag odd">stopped by {esc(stop)}</span>' if stop not in ("eos", "") else ""
    text = turn.get("text")
    reply = f'<pre dir="auto">{_text(str(text))}</pre>' if text is not None else '<p class="gone">No visible text.</p>'
    return (
        f'<li class="turn {colours.get(str(turn["key"][0]), "c7")}"><div class="who"><b>{esc(_name(turn))}</b>'
        f"{_claim(turn, record)}{cut_off}<small>{esc(', '.join(facts))}</small></div>"
        f"{_prompt(turn)}{reply}{ELSEWHERE if elsewhere else _pay(turn, record, top)}</li>"
    )


def _text(text: str) -> str:
    shown, left_out = cut(text)
    return esc(shown) + ("\n<small>the whole text is in the run folder</small>" if left_out else "")


def _prompt(turn: Mapping[str, Any]) -> str:
    messages = turn.get("messages")
    messages = [m for m in messages if isinstance(m, Mapping)] if isinstance(messages, list) else []
    size = sum(len(str(message.get("content", ""))) for message in messages)
    ids = turn.get("prompt_ids")
    several = len(messages) > 1
    body = "".join(
        (f'<div class="speaker">{esc(message.get("role", ""))}</div>' if several else "")
        + f'<pre class="prompt" dir="auto">{_text(str(message.get("content", "")))}</pre>'
        for message in messages[:12]
    )
    note = f", {len(messages) - 12} messages left out" if len(messages) > 12 else ""
    wrote = mapping(mapping(turn.get("completion")).get("endpoint"))  # its prompt has a hash here, and no tokens
    count = f", {len(ids):,} tokens" if isinstance(ids, list) and not wrote else ""
    is_open = " open" if size <= OPEN_PROMPT else ""
    return f"<details{is_open}><summary>prompt{count}{note}</summary>{body}</details>"


def _claim(turn: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """What the turn claims, and whether it is right where that was graded."""
    claim = mapping(turn.get("claim"))
    if not claim:
        return ""
    kind, value = str(claim.get("kind", "")), claim.get("value")
    if value is None or (kind == "verdict" and value == "unparsed"):
        return f'<span class="tag odd">{esc(kind)} not parsed</span>'
    answers = mapping(mapping(record.get("graded")).get("answers"))
    right: bool | None = None
    own = mapping(answers.get(str(turn.get("id")))).get("status")
    judged = mapping(answers.get(str(turn.get("about")))).get("status")
    if own in ("right", "wrong"):
        right = own == "right"
    elif kind == "verdict" and judged in ("right", "wrong"):
        right = (value == "correct") == (judged == "right")
    tag = "" if right is None else " won" if right else " lost"
    mark = "" if right is None else " ✓" if right else " ✗"
    spoken = "" if right is None else f' title="{"right" if right else "wrong"}"'
    label = f"says {value}" if kind == "verdict" else f"{kind} {cut(str(value), 60, 15)[0]}"
    return f'<span class="tag{tag}"{spoken}>{esc(label)}{mark}</span>'


def _pay(turn: Mapping[str, Any], record: Mapping[str, Any], top: float) -> str:
    """Reward with its parts, and the advantage as a bar to the left or right of 0; silent in evaluations."""
    reward = mapping(mapping(record.get("rewards")).get(str(turn.get("id"))))
    advantages = mapping(record.get("advantages"))
    if not reward and not advantages:
        return ""
    pieces = []
    if reward:
        parts = ", ".join(f"{words(str(k))} {plain(v)}" for k, v in mapping(reward.get("parts")).items())
        total = reward.get("total")
        value = plain(total) if total is not None else "none"
        source = " (the team's)" if reward.get("team") else ""
        pieces.append(f"<span>reward <b>{value}</b>{source}{f' = {esc(parts)}' if parts else ''}</span>")
    if str(turn.get("id")) in advantages:
        pieces.append(_advantage(number(advantages[str(turn.get("id"))]), top))
    else:
        pieces.append("<span>no advantage: not trained</span>")
    return f'<div class="pay">{"".join(pieces)}</div>'


def _advantage(value: float, top: float) -> str:
    if not math.isfinite(value):
        return "<span>advantage is not a number</span>"
    half = 50 * min(1.0, abs(value) / top) if top else 0.0
    x = 50 if value >= 0 else 50 - half
    kind = "up" if value >= 0 else "down"
    text = f"{value:+.2f}".replace("-", "−") if value else "0"
    return (
        f'<span class="adv">advantage <svg aria-hidden="true"><rect class="{kind}" x="{x:.1f}%" width="{half:.1f}%" '
        f'height="100%"/><line class="mid" x1="50%" x2="50%" y2="100%"/></svg> <b>{text}</b></span>'
    )
