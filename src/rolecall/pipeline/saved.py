"""What the pipeline has under way between two steps, as plain data for a checkpoint, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rolecall.pipeline.candidates import GroupWork, Play
from rolecall.pipeline.scheduler import Group


def groups_state(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """Groups that are under way, wait for the learner, or wait for their siblings; in the order of their places."""
    return [
        {
            "place": list(group.place),
            "started": group.started,
            "oldest": group.oldest,
            "scored": group.scored,
            "rows": [row.state() for row in group.rows],
            **group.data.to_dict(),
        }
        for group in sorted(groups, key=lambda group: group.place)
    ]


async def restored_groups(saved: Sequence[Mapping[str, Any]], play: Play) -> list[Group]:
    """The groups that `groups_state` gave; their workflows run again up to where they stood, at no engine cost."""
    works = await asyncio.gather(*[GroupWork.from_dict(play, one) for one in saved])
    return [_group(one, work, play) for one, work in zip(saved, works, strict=True)]


def _group(saved: Mapping[str, Any], work: GroupWork, play: Play) -> Group:
    chain, stage, number = saved["place"]
    role = work.key.role
    group = Group.of(
        len(work.completions),
        chain=chain,
        stage=stage,
        number=number,
        policy=play.roles[role].policy,
        role=role,
        data=work,
    )
    group.started, group.oldest = saved["started"], saved["oldest"]
    for row, state in zip(group.rows, saved["rows"], strict=True):
        row.restore(state)
    group.open = sum(not row.ended for row in group.rows)
    group.scored = saved.get("scored", not group.open)  # files before this key do not say
    return group
