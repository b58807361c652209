"""What a run says of a step in words: why episodes failed, why nothing was learned, and nothing of it twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rolecall.algorithms.diagnose import Reason
from rolecall.dynamics.alarms import Alarm
from rolecall.records import GradedEpisode

SILENT = ("rewards_zero", "never_trains")
"""Alarms that say of a role why its advantages are all 0."""


def failures_in_words(graded: Sequence[GradedEpisode]) -> str | None:
    """How many episodes failed and why the first did: counts alone name no cause. None when none did."""
    failed = [one.episode.failure for one in graded if one.episode.failure is not None]
    if not failed:
        return None
    first = failed[0]
    return f"{len(failed)} of {len(graded)} episodes failed; the first, at {first.where}: {first.detail:.300}"


def step_notes(
    graded: Sequence[GradedEpisode], reasons: Sequence[Reason], alarms: Sequence[Alarm], roles: Mapping[str, str]
) -> Iterator[str]:
    """The lines of one step: failures, the reasons that no alarm of the step has given, the alarms. `roles`: of each
    role its policy."""
    failures = failures_in_words(graded)
    if failures is not None:
        yield failures
    for reason in reasons:
        if not (failures is not None and reason.mark == "failed") and not said_by(reason, alarms, roles):
            yield reason.text
    yield from (alarm.text for alarm in alarms)


def said_by(reason: Reason, alarms: Sequence[Alarm], roles: Mapping[str, str]) -> bool:
    """Whether an alarm gives the reason: a mark of a role is given by the alarm about that mark, and what holds for all
    units of a policy by an alarm about the silence of one of its roles."""
    return any(
        alarm.key in (*SILENT, f"much_{reason.mark}") and alarm.subject == reason.role
        if reason.role is not None
        else alarm.key in SILENT and roles.get(alarm.subject) == reason.policy
        for alarm in alarms
    )
