"""One run of one workflow on one task: what stands behind a team. Calls and effects are replayed or made, and recorded.

A call whose record matches what is asked now gets the recorded turn, or raises the recorded failure, and costs nothing;
any other goes to the port. See `transcript.py` for records and `runner.py` for how an episode ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import Callable, Mapping
from typing import Any

from rolecall.errors import (
    BlockedLoop,
    EffectError,
    EpisodeTimeout,
    PromptTooLong,
    ReplayMismatch,
    RolecallError,
    WorkflowError,
    boundary,
    nearest,
)
from rolecall.records import Completion, Key, Messages, Turn
from rolecall.rollout.calls import build_request, in_place, make_record, mismatch_of, seed_of
from rolecall.rollout.effects import run_effect
from rolecall.rollout.loop import Branch, EpisodeLoop, EpisodeTask, Seen, current_loop
from rolecall.rollout.transcript import (
    Book,
    CallRecord,
    EffectRecord,
    Journal,
    Limits,
    OnMismatch,
    RoleSettings,
    Transcript,
    failure_of,
    hash_ids,
    hash_sampling,
    raise_again,
)
from rolecall.rollout.waves import Pending, Port
from rolecall.workflows.base import Reply, Workflow


class TeamRandom(random.Random):
    """The random numbers of a team: a class of its own, so that a check can tell them from a workflow's own."""


class EpisodeSession:
    """The calls and effects of one episode; implements `workflows.base.Session`."""

    def __init__(
        self,
        *,
        workflow: Workflow,
        transcript: Transcript,
        roles: Mapping[str, RoleSettings],
        port: Port,
        limits: Limits,
        on_mismatch: OnMismatch = "error",
        order: tuple[int, int] = (0, 0),
        journal: Journal | None = None,
    ) -> None:
        self.workflow, self.transcript, self.roles, self.port = workflow, transcript, roles, port
        self.limits, self.on_mismatch, self.order, self.journal = limits, on_mismatch, order, journal
        self.loop: EpisodeLoop = current_loop()
        self.book = Book.of(transcript)
        self.pending: dict[Key, Pending] = {}
        self.raised: list[tuple[str, RolecallError]] = []
        self.mismatch: ReplayMismatch | None = None
        self.closed = False
        self.waited_for = ""
        self.num_effects = 0
        self.expired = False
        self._root: EpisodeTask[Any] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._rng: TeamRandom | None = None
        self._counts: dict[tuple[str, int], int] = {}
        self._in_flight: set[tuple[str, int]] = set()
        self._effect_counts: dict[str, int] = {}
        self._effects_in_flight: set[str] = set()
        self._diverged: int | None = None

    @property
    def rng(self) -> random.Random:
        if self._rng is None:
            self._rng = TeamRandom(seed_of(self.transcript, "team.rng"))
        return self._rng

    @property
    def is_waiting(self) -> bool:
        return bool(self.pending)

    @property
    def waits_for(self) -> str:
        """The calls and effects that are under way, for people."""
        effects = [f"effect {name}" for name in sorted(self._effects_in_flight)]
        return ", ".join([*(str(key) for key in sorted(self.pending)), *effects])

    def attach(self, root: EpisodeTask[Any], ended: asyncio.Future[None]) -> None:
        """`root` runs the workflow; `ended` is set when it is done, or given up."""
        self._root, self._ended = root, ended
        root.add_done_callback(self._end)
        self.port.enter(self)
        self._start_clock()

    def _start_clock(self) -> None:
        if self.limits.deadline_s is not None:
            self._clock = self.loop.deadline(self.limits.deadline_s, self._expire)

    def _expire(self) -> None:
        """The episode's deadline has passed; while it only waits for other episodes, it gets another one."""
        if self.port.waits_for_others(self):
            self._start_clock()
        else:
            self.expired = True
            self.stop()

    def stop(self) -> None:
        """Cancel whatever still runs; a workflow that does not let itself be cancelled is given up after a while."""
        if self._root is None or self.closed:
            return
        self.closed = True
        self.port.leave(self)
        if self._clock is not None:
            self._clock.cancel()
        self.waited_for = self.waits_for
        self._root.branch.cancel()
        if not self._root.done():
            self._root.cancel()
            self.loop.deadline(self.limits.grace_s, self._give_up)

    def _give_up(self) -> None:
        """Close the coroutine of a workflow that swallowed its cancellation, so that its loop can be closed too."""
        root = self._root
        if root is not None and not root.done():
            coroutine = root.get_coro()
            if inspect.iscoroutine(coroutine):
                # it may ignore that as well, or raise in its turn: nothing more can be done from here
                with contextlib.suppress(RuntimeError, RolecallError):
                    coroutine.close()
            root.cancel()
        self._end(None)

    def _end(self, root: asyncio.Task[Any] | None) -> None:
        if root is not None and not root.cancelled():
            root.exception()  # seen here, so that a run that is ending does not report it again
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def note_absence(self) -> None:
        self._diverge(self._branch().observed().level)

    async def call(self, role: str, copy: int, messages: Messages, about: str | None) -> Reply:
        settings = self.roles.get(role)
        if settings is None:
            raise WorkflowError(f"role {role!r} has no policy{nearest(role, self.roles)}")
        branch = self._branch()
        self._check_open()
        seat = (role, copy)
        if seat in self._in_flight:
            raise WorkflowError(
                f"two calls of {role!r} copy {copy} at once: a copy makes one call after the other; "
                f"ask copies side by side, with team.copies({role!r}, n)"
            )
        call = self._counts.get(seat, 0)
        if sum(self._counts.values()) >= self.limits.max_calls:
            raise WorkflowError(
                f"call {role}:{call} is one more than max_calls={self.limits.max_calls}; does a loop end?"
            )
        self._counts[seat] = call + 1
        key = Key(role, copy, call)
        seen = branch.observed()
        self._in_flight.add(seat)
        try:
            turn = await self._turn(key, seen, settings, messages, about)
        except RolecallError as error:
            branch.seen = max(branch.seen, Seen(seen.level + 1, key, seen.turn_id))
            self.raised.append((str(key), error))
            raise
        finally:
            self._in_flight.discard(seat)
        branch.seen = max(branch.seen, Seen(seen.level + 1, key, turn.id))
        return Reply(text=turn.text, claim=turn.claim, turn_id=turn.id, truncated=turn.truncated)

    async def _turn(self, key: Key, seen: Seen, settings: RoleSettings, messages: Messages, about: str | None) -> Turn:
        """The turn of a call: from its record when that matches, else from the port; raises its failure."""
        asked = build_request(self.transcript, key, settings, messages)
        pending = Pending(
            order=self.order,
            key=key,
            level=seen.level + 1,
            request=asked,
            prompt_hash=hash_ids(asked.prompt_ids),
            sampling_hash=hash_sampling(asked.sampling, asked.end_ids),
            about=about,
            parent=seen.turn_id or None,
            deadline_s=settings.deadline_s,
            reply=self.loop.create_future(),
        )
        record = self.book.old_calls.get(key)
        if record is not None and not self._matches(record, pending):
            record = None
        if record is not None:
            record = in_place(record, pending)
            self.book.num_replayed += 1
            if record.edited:
                self._diverge(pending.level)
            await asyncio.sleep(0)
        else:
            if self.book.old_calls or self.book.old_effects:
                self._diverge(pending.level)
            reply = await self._sample(pending)
            self._check_open()
            record = make_record(self.workflow, settings, self.transcript, pending, reply)
            if self.journal is not None:
                self.journal(self.transcript.id, record)
        self.book.calls.append(record)
        if record.failure is not None:
            raise raise_again(record.failure)
        assert record.turn is not None
        return record.turn

    def _matches(self, record: CallRecord, pending: Pending) -> bool:
        """Whether a record answers this call; if not, an error in recovery."""
        mismatch = mismatch_of(record, pending, self.transcript.id)
        if mismatch is not None and self.on_mismatch == "error":
            self.mismatch = mismatch
            raise mismatch
        return mismatch is None

    async def _sample(self, pending: Pending) -> Completion | RolecallError:
        request = pending.request
        if len(request.prompt_ids) > request.sampling.max_prompt_tokens:
            return PromptTooLong(
                f"the prompt of {pending.key} has {len(request.prompt_ids)} tokens or more, and the role's "
                f"max_prompt_tokens is {request.sampling.max_prompt_tokens}; raise it, or set overlong = "
                "'truncate_left'"
            )
        self.pending[pending.key] = pending
        self.port.submit(pending)
        try:
            return await pending.reply
        finally:
            del self.pending[pending.key]
            if not pending.reply.done() or pending.reply.cancelled():
                self.port.withdraw(pending)

    async def effect(self, name: str, fn: Callable[[], Any], deadline_s: float | None) -> Any:
        branch = self._branch()
        self._check_open()
        if name in self._effects_in_flight:
            raise WorkflowError(f"two effects named {name!r} at once: give each its own name, e.g. {name + '.1'!r}")
        call = self._effect_counts.get(name, 0)
        self._effect_counts[name] = call + 1
        level = branch.observed().level
        record = self.book.old_effects.get((name, call))
        self._effects_in_flight.add(name)
        try:
            if record is not None and self._still_holds(record):
                await asyncio.sleep(0)
            else:
                record = await self._make_effect(name, call, level, fn, deadline_s)
                if self.journal is not None:
                    self.journal(self.transcript.id, record)
        finally:
            self._effects_in_flight.discard(name)
        self.book.effects.append(record)
        if record.failure is not None:
            error = raise_again(record.failure)
            self.raised.append((f"effect {name}", error))
            raise error
        return record.value

    async def _make_effect(
        self, name: str, call: int, level: int, fn: Callable[[], Any], deadline_s: float | None
    ) -> EffectRecord:
        self.num_effects += 1
        self.loop.num_effects += 1
        try:
            with boundary(EffectError, f"effect {name!r}"):
                async with asyncio.timeout(deadline_s):
                    value = await run_effect(fn, self.loop, name)
        except (EpisodeTimeout, BlockedLoop, ReplayMismatch):
            raise
        except RolecallError as error:
            return EffectRecord(name=name, call=call, level=level, failure=failure_of(error, f"effect {name}"))
        finally:
            self.num_effects -= 1
            self.loop.num_effects -= 1
        self._check_open()
        return EffectRecord(name=name, call=call, level=level, value=value)

    def _still_holds(self, record: EffectRecord) -> bool:
        """Whether a recorded effect was made in this world: not after an edit, an absence or a call sampled anew."""
        return self.on_mismatch == "error" or self._diverged is None or record.level < self._diverged

    def _diverge(self, level: int) -> None:
        self._diverged = level if self._diverged is None else min(self._diverged, level)

    def _branch(self) -> Branch:
        task = asyncio.current_task(self.loop)
        if not isinstance(task, EpisodeTask) or task.branch.owner is not self:
            raise WorkflowError(
                f"a call of episode {self.transcript.id} came from outside its workflow: use the team that `run` was "
                f"given, inside `run`, and keep nothing between episodes"
            )
        return task.branch

    def _check_open(self) -> None:
        if self.closed:
            raise EpisodeTimeout(f"episode {self.transcript.id} has ended; the workflow went on after it was cancelled")
