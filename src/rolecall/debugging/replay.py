"""`rolecall replay`: a recorded episode again, as it was or with one reply changed and the rest run anew."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from rolecall.debugging.episodes import TRAINING, Stored, find_episode
from rolecall.debugging.show import Page, claim_words, made_by, outcome_words, text_of, turn_words, who
from rolecall.debugging.stage import Stage, open_stage, read_target
from rolecall.errors import ReplayMismatch, UsageError, nearest
from rolecall.pipeline.candidates import ending_of
from rolecall.records import Episode, GradedEpisode, Key, OutcomeClass, Reward, Turn
from rolecall.rollout.runner import Frontier, run_episode, run_to_frontier, turns_of
from rolecall.rollout.serial import to_dict
from rolecall.rollout.transcript import Finished, Limits, RoleSettings, edit
from rolecall.run_folder import RunFolder
from rolecall.workflows.base import Workflow

NO_LIMITS = Limits(deadline_s=None)


def find_key(text: str, keys: Iterable[Key]) -> Key:
    """The key that `text` names, as `role:call`, `role.copy:call`, or `["role", copy, call]`.

    Nothing is cut out of `text`: it is compared with the names of the calls that there are, so that any name of a role
    will do. Where two roles' names make one text ambiguous, the list says which is meant.

    >>> find_key("judge.2:0", [Key("judge", 2, 0), Key("judge.3", 0, 0)])
    Key(role='judge', copy=2, call=0)
    """
    keys = sorted(keys)
    named = {key: {str(key), f"{key.role}.{key.copy}:{key.call}"} for key in keys}
    found = [key for key, names in named.items() if text in names] or [key for key in keys if _as_list(text) == [*key]]
    if not found:
        raise UsageError(f"the episode has no call {text!r}{nearest(text, map(str, keys))}")
    if len(found) > 1:
        forms = " or ".join(f"'{json.dumps(list(key))}'" for key in found)
        raise UsageError(f"{text!r} names {len(found)} calls, since one role's name begins another's; give {forms}")
    return found[0]


def _as_list(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def replay_as_recorded(run: Path, episode: str, page: Page, *, source: str | None = None) -> bool:
    """Run an episode from its records alone, and say whether it is the same; no model is loaded."""
    stored = find_episode(RunFolder.open(run), episode, source)
    transcript = stored.transcript
    config, _ = read_target(run, checkpoint="base")
    with open_stage(config, None, lambda words: None) as stage:
        difference = _difference(stored, stage)
    where = f"episode {episode} ({stored.source}, {len(transcript.calls)} calls, {len(transcript.effects)} effects)"
    if difference is None:
        page.line(f"{where} replays as it was recorded")
        return True
    page.line(f"{where} is another one now: {difference}")
    page.line(
        "Wanted the same episode. If the workflow or its prompts have changed since, that is why; if not, try "
        "`rolecall check` on the workflow."
    )
    return False


def replay_edited(
    run: Path,
    episode: str,
    at: str,
    new_text: Callable[[str], str],
    page: Page,
    *,
    source: str | None = None,
    checkpoint: str = "best",
) -> GradedEpisode:
    """Run an episode with the reply of the call `at` changed, and show before and after.

    Calls whose prompts stay as they were are replayed; the others are sampled from the checkpoint. `new_text` gets the
    old reply.
    """
    stored = find_episode(RunFolder.open(run), episode, source)
    transcript = stored.transcript
    key = find_key(at, [record.key for record in transcript.calls])
    old = transcript.call(key).turn
    config, where = read_target(run, checkpoint=checkpoint)
    with open_stage(config, where, lambda words: page.line(words, "dim")) as stage:
        text = new_text(old.text or "" if old is not None else "")
        edited = edit(transcript, key, text, stage.plan.workflow.claim)
        finished = run_episode(
            stage.plan.workflow,
            edited,
            _settings(stage, stored),
            stage.engine,
            limits=NO_LIMITS,
            on_mismatch="resample",
        )
        graded = stage.grade(finished.episode)
        _show(page, stored, graded, stage.rewards(graded), key)
        page.line(
            f"{finished.num_replayed - 1} calls replayed, 1 edited, {finished.num_sampled} sampled "
            f"from {stage.engine.weights}",
            "dim",
        )
    return graded


def ask_editor(text: str) -> str:
    """`text` as somebody changed it in $VISUAL or $EDITOR."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("no editor is set in $EDITOR; set it, or give the new reply with --text or --file")
    with tempfile.TemporaryDirectory(prefix="rolecall-reply-") as folder:
        file = Path(folder) / "reply.txt"
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(editor), str(file)], check=False)
        except OSError as error:
            raise UsageError(f"the editor {editor!r} cannot be started ({error.strerror}); set $EDITOR") from None
        if done.returncode != 0:
            raise UsageError(f"the editor {editor!r} ended with code {done.returncode}; nothing was changed or run")
        return file.read_text(encoding="utf-8").removesuffix("\n")


def _recorded(stage: Stage, stored: Stored) -> dict[str, RoleSettings]:
    """The settings under which the episode was recorded, with the earlier versions that roles played."""
    played = {record.key.role: record.policy for record in stored.transcript.calls}
    return {role: replace(one, policy=played.get(role, one.policy)) for role, one in _settings(stage, stored).items()}


def _settings(stage: Stage, stored: Stored) -> dict[str, RoleSettings]:
    """The settings of the run at the place where the episode was recorded."""
    config = stage.plan.config
    if stored.source == TRAINING:
        return stage.roles(stage.plan.sampling)
    return stage.roles({role: config.eval_sampling(role) for role in stage.plan.roles})


def _difference(stored: Stored, stage: Stage) -> str | None:
    """The first place where a replay differs from the record; an episode that was cut off is compared up to there."""
    before, workflow = stored.graded.episode, stage.plan.workflow
    try:
        place = run_to_frontier(workflow, stored.transcript, _recorded(stage, stored), limits=NO_LIMITS)
    except ReplayMismatch as error:
        return str(error)
    if before.is_candidate:
        return _other_candidate(before, place, workflow)
    if isinstance(place, Frontier):
        if before.outcome_class is OutcomeClass.TIMEOUT:
            return None
        return f"it goes on to call {', '.join(map(str, place.keys))}, of which there is no record"
    after = place.episode
    if _ending(before) != _ending(after):
        return f"it ended in {_ending(before)}, and now in {_ending(after)}"
    return _other_turn(before.turns, after.turns, workflow)


def _other_candidate(before: Episode, place: Frontier | Finished, workflow: Workflow) -> str | None:
    """As `_difference`, of a candidate of agentic groups: its record ends with its own turn."""
    turns = turns_of(place.transcript)
    if difference := _other_turn(before.path, turns, workflow):
        return difference
    outcome, kind, failure = ending_of(place, turns)
    after = replace(before, outcome=outcome, outcome_class=kind, failure=failure)
    if _ending(before) != _ending(after):
        return f"it ended in {_ending(before)}, and now in {_ending(after)}"
    return None


def _other_turn(before: Sequence[Turn], after: Sequence[Turn], workflow: Workflow) -> str | None:
    """The first turn that is another one, or of which the workflow now reads something else."""
    for turn, again in zip_longest(before, after):
        if turn != again:
            return f"the turn {turn.key if turn else again.key} is another one, or missing"
        claim = workflow.claim(turn.role, turn.text, turn.truncated)
        if claim != turn.claim:
            return f"{turn.key} claimed {claim_words(turn.claim)}, and the workflow now reads {claim_words(claim)}"
    return None


def _ending(episode: Episode) -> str:
    """How an episode ended, without the line numbers of a traceback, as text (so that not a number equals itself)."""
    failure = f" ({episode.failure.kind} at {episode.failure.where})" if episode.failure is not None else ""
    outcome = json.dumps(to_dict(episode.outcome), sort_keys=True) if episode.outcome is not None else "no outcome"
    return f"{episode.outcome_class}{failure}, {outcome}"


def _show(page: Page, stored: Stored, graded: GradedEpisode, rewards: Mapping[str, Reward], edited: Key) -> None:
    """Turn by turn, before and after; a turn that stayed as it was is said once."""
    before = {turn.key: turn for turn in stored.graded.episode.path}
    after = {turn.key: turn for turn in graded.episode.path}
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if old is not None and old == new:
            page.heading(f"{who(old)}, as before")
            page.block(text_of(old))
            page.line(_words(old, stored.graded, stored.rewards, stored.advantages))
            continue
        page.heading(f"{key}, edited" if key == edited else str(key))
        page.pair(
            _side(old, stored.graded, stored.rewards, stored.advantages),
            _side(new, graded, rewards, {}, "you" if key == edited else ""),
        )
    page.heading("the episode")
    page.pair(outcome_words(stored.graded), outcome_words(graded))


def _side(
    turn: Turn | None,
    graded: GradedEpisode,
    rewards: Mapping[str, Reward],
    advantages: Mapping[str, float],
    person: str = "",
) -> str:
    if turn is None:
        return "(not called)"
    return f"by {person or made_by(turn)}\n{text_of(turn)}\n{_words(turn, graded, rewards, advantages)}"


def _words(turn: Turn, graded: GradedEpisode, rewards: Mapping[str, Reward], advantages: Mapping[str, float]) -> str:
    reward = rewards.get(turn.id)
    return turn_words(turn, graded.answers.get(turn.id), reward, advantages.get(turn.id))
