"""How alike the outputs of a team are: copies side by side, the plans of one reply, one text for all tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from itertools import combinations, pairwise

from rolecall.records import Episode, Turn


def likeness(episode: Episode) -> Iterator[tuple[str, str, float]]:
    """Role, name and value, in [0, 1], of everything in an episode that several copies were asked side by side.

    `distance`, of the copies: mean over their pairs of 1 - |A and B| / |A or B|, A and B the pairs of neighbouring
    tokens in their completions. `different_plans`, of the role whose one turn all of them are about, and who so gave
    them their prompts: (different prompts - 1) / (copies - 1), 0 when it gave all of them the same.
    """
    by_id = {turn.id: turn for turn in episode.path}
    for turns in side_by_side(episode):
        yield turns[0].role, "distance", mean_distance([neighbours(turn) for turn in turns])
        planner = by_id.get(turns[0].about or "")
        if planner is None or planner.role == turns[0].role or len({turn.about for turn in turns}) > 1:
            continue
        prompts = {(turn.prompt_ids, tuple(message["content"] for message in turn.messages)) for turn in turns}
        yield planner.role, "different_plans", (len(prompts) - 1) / (len(turns) - 1)


def side_by_side(episode: Episode) -> list[list[Turn]]:
    """The turns of copies of one role in one call each, where there are two copies or more."""
    groups: dict[tuple[str, int], dict[int, Turn]] = defaultdict(dict)
    for turn in episode.turns:
        groups[turn.role, turn.key.call].setdefault(turn.key.copy, turn)
    return [list(turns.values()) for turns in groups.values() if len(turns) > 1]


def neighbours(turn: Turn) -> frozenset[Hashable]:
    """The pairs of neighbouring tokens in a completion, its single token where it has but one; of an endpoint's text,
    pairs of words."""
    items: tuple[Hashable, ...] = turn.completion.token_ids or tuple((turn.text or "").split())
    return frozenset(pairwise(items)) or frozenset(items)


def mean_distance(sets: Iterable[frozenset[Hashable]]) -> float:
    """Mean Jaccard distance of the pairs of sets; 0 for two that are empty.

    >>> mean_distance([frozenset("ab"), frozenset("bc"), frozenset("ab")])
    0.4444444444444444
    """
    pairs = list(combinations(sets, 2))
    return sum(1.0 - len(a & b) / len(a | b) if a | b else 0.0 for a, b in pairs) / len(pairs)


def repeated_texts(episodes: Iterable[Episode]) -> dict[str, float]:
    """Of the turns of each role that can be read, the share whose text it also gave for another task; roles that were
    heard on one task alone have none."""
    tasks: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    said: dict[str, list[str]] = defaultdict(list)
    for episode in episodes:
        for turn in episode.turns:
            if turn.text is not None:
                tasks[turn.role][turn.text].add(episode.task.id)
                said[turn.role].append(turn.text)
    return {
        role: sum(len(tasks[role][text]) > 1 for text in texts) / len(texts)
        for role, texts in said.items()
        if len(set().union(*tasks[role].values())) > 1
    }
