"""One episode as the page shows it: lanes and rows for its turns, what each was given, and what it changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rolecall.viewer.metrics import finite
from rolecall.viewer.records import context_of, path_of

MAX_DIFF_WORDS = 1500
"""Two texts of more words together are compared by line: comparing words takes the product of their numbers."""


def episode_view(record: Mapping[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    """The page's episode: `lanes` in the workflow's order of roles (a lane a copy) and `turns`, each with its lane, its
    row, and in `compare` the turn whose answer it repairs. `context`: a turn of the path that another episode, of the
    turn's own id, is counted by."""
    graded = record["graded"]
    episode = graded["episode"]
    turns, elsewhere = path_of(dict(record)), {turn["id"] for turn in context_of(dict(record))}
    lanes = _lanes(turns, roles)
    rows = _rows(turns)
    by_id = {turn["id"]: turn for turn in turns}
    return {
        "id": episode["id"],
        "step": episode["step"],
        "index": episode["index"],
        "attempt": episode["attempt"],
        "task": {name: episode["task"].get(name) for name in ("id", "question", "answer", "source", "grader")},
        "outcome_class": episode["outcome_class"],
        "outcome": episode["outcome"],
        "failure": episode["failure"],
        "team": graded["team"],
        "lanes": [{"role": role, "copy": copy} for role, copy in lanes],
        "turns": [
            turn_view(turn, record)
            | {"lane": lanes.index((turn["key"][0], turn["key"][1])), "row": rows[turn["id"]]}
            | {"compare": repaired(turn, by_id), "judged": judged(turn, graded["answers"])}
            | {"context": turn["id"] in elsewhere}
            for turn in turns
        ],
    }


def turn_view(turn: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """One turn without its token ids: they come on demand."""
    completion = turn["completion"]
    versions, logprobs = completion["versions"], completion["logprobs"]
    role, copy, call = turn["key"]
    wrote = completion.get("endpoint")  # text from an endpoint, which counts its own tokens
    return {
        "id": turn["id"],
        "name": f"{role}{f'.{copy}' if copy else ''}:{call}",
        "role": role,
        "copy": copy,
        "call": call,
        "policy": turn["policy"],
        "versions": [min(versions), max(versions)] if versions else None,
        "num_prompt": (wrote["num_prompt_tokens"] or 0) if wrote else len(turn["prompt_ids"]),
        "num_tokens": (wrote["num_tokens"] or 0) if wrote else len(completion["token_ids"]),
        "mean_logprob": finite(sum(logprobs) / len(logprobs)) if logprobs else None,
        "stop": completion["stop"],
        "messages": turn["messages"],
        "text": turn["text"],
        "claim": turn["claim"],
        "grade": record["graded"]["answers"].get(turn["id"]),
        "about": turn["about"],
        "parent": turn["parent"],
        "candidate": turn["candidate"],
        "peers": turn["peers"],
        "reward": record["rewards"].get(turn["id"]),
        "advantage": finite(record["advantages"].get(turn["id"])),
    }


def repaired(turn: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The nearest turn that gave an answer before this one, along `about`: a corrector's solution."""
    if not _answers(turn):
        return None
    seen = {turn["id"]}
    at = by_id.get(turn["about"])
    while at is not None and at["id"] not in seen:
        if _answers(at):
            return str(at["id"])
        seen.add(at["id"])
        at = by_id.get(at["about"])
    return None


def judged(turn: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> bool | None:
    """Whether a verdict fits the grade of the answer that it is about; None where either is not to be had."""
    claim, grade = turn["claim"], answers.get(turn["about"] or "")
    if not claim or claim["kind"] != "verdict" or claim["value"] not in ("correct", "wrong"):
        return None
    if grade is None or grade["status"] not in ("right", "wrong"):
        return None
    return bool((claim["value"] == "correct") == (grade["status"] == "right"))


def diff_texts(before: str, after: str) -> list[tuple[str, str]]:
    """Runs of text marked `same`, `removed` or `added`; joined without the added ones they give `before`, without the
    removed ones `after`. By word, or by line when the texts are long.

    >>> diff_texts("7+5=11", "7+5=12")
    [('same', '7+5='), ('removed', '11'), ('added', '12')]
    """
    a, b = _words(before), _words(after)
    if len(a) + len(b) > MAX_DIFF_WORDS:
        a, b = before.splitlines(keepends=True), after.splitlines(keepends=True)
    found: list[tuple[str, str]] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=len(a) + len(b) > MAX_DIFF_WORDS).get_opcodes():
        if tag == "equal":
            found.append(("same", "".join(a[i:j])))
            continue
        if j > i:
            found.append(("removed", "".join(a[i:j])))
        if m > k:
            found.append(("added", "".join(b[k:m])))
    return found


def find_turn(record: Mapping[str, Any], turn_id: str) -> dict[str, Any] | None:
    """The turn of an id, or None."""
    return next((turn for turn in path_of(dict(record)) if turn["id"] == turn_id), None)


def _answers(turn: Mapping[str, Any]) -> bool:
    return bool(turn["claim"]) and turn["claim"]["kind"] == "answer"


def _lanes(turns: Sequence[Mapping[str, Any]], roles: Sequence[str]) -> list[tuple[str, int]]:
    """A lane for each copy that acted; roles in the workflow's order, those that it does not name at the end."""
    order = {role: index for index, role in enumerate(roles)}
    for turn in turns:
        order.setdefault(turn["key"][0], len(order))
    return sorted({(turn["key"][0], turn["key"][1]) for turn in turns}, key=lambda lane: (order[lane[0]], lane[1]))


def _rows(turns: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """A row for each turn: below those it follows or is about, and alone in its lane; turns side by side share one."""
    rows: dict[str, int] = {}
    taken: set[tuple[str, int, int]] = set()
    for turn in turns:
        above = [rows[name] for name in (turn["parent"], turn["about"]) if name in rows]
        row = max(above, default=-1) + 1
        role, copy, _ = turn["key"]
        while (role, copy, row) in taken:
            row += 1
        taken.add((role, copy, row))
        rows[turn["id"]] = row
    return rows


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", text)
