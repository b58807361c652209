"""A run: its rooms, open at once, and the small steps that the training loop is made of."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rolecall.algorithms.base import CreditResult
from rolecall.algorithms.diagnose import Reason, reasons
from rolecall.assemble import Plan, losses, make_renderers, make_tasks
from rolecall.cliff_guard import CliffGuard
from rolecall.dynamics.behaviour import behaviour_metrics
from rolecall.engines.router import make_engine
from rolecall.evaluate import Evaluation, summarise
from rolecall.grading.episodes import grade_episodes
from rolecall.grading.health import GraderWatch, faults_in_words
from rolecall.grading.pool import GraderPool
from rolecall.inflight import InFlight
from rolecall.learner.checkpoint import seed_random
from rolecall.learner.progress import UpdateReport
from rolecall.learner.samples import build_samples, by_policy
from rolecall.notes import step_notes
from rolecall.partners import Partners, partner_specs
from rolecall.policies.build import build_policies
from rolecall.policies.parity import Parity
from rolecall.policies.publish import Publisher
from rolecall.progress import Progress
from rolecall.records import CreditUnit, GradedEpisode, Task
from rolecall.rollout.loop import LoopRunner
from rolecall.rollout.transcript import Transcript
from rolecall.run_episodes import episode_rows, evaluation_plans, make_collector
from rolecall.run_folder import RunFolder, environment_changes
from rolecall.run_setup import make_monitor, probe_prompts, quiet_transformers
from rolecall.run_state import Checkpoints, Totals, flat_run
from rolecall.sources import make_source
from rolecall.tasks.base import TaskSplits
from rolecall.tasks.stream import TaskStream
from rolecall.trackers import Trackers, open_trackers


class Run:
    """Everything that a training or evaluation needs, and its state; `close` it."""

    def __init__(self, plan: Plan, folder: RunFolder, progress: Progress, splits: TaskSplits | None = None) -> None:
        self._begun = time.monotonic()
        quiet_transformers()
        config = plan.config
        seed_random(config.seed)
        self.plan, self.config, self.folder, self.progress = plan, config, folder, progress
        self.splits = splits or make_tasks(config)
        self.stream = TaskStream(self.splits.train, seed=config.seed)
        self.renderers = make_renderers(plan)
        self.policies = build_policies(
            plan.table.local,
            plan.learners,
            losses(plan),
            seed=config.seed,
            interventions=config.interventions,
            roles={role: plan.table.roles[role] for role in plan.table.train_roles},
        )
        self.learners = {n: policy.learner for n, policy in self.policies.items() if policy.learner is not None}
        self.monitor = make_monitor(plan, self.learners)
        self.checkpoints = Checkpoints(plan, folder, self.learners, self.splits.fingerprint)
        self.guard = CliffGuard(settings=config.evaluation, checkpoints=self.checkpoints)
        with ExitStack() as opened:  # whatever fails from here on ends what was started
            self.loop = LoopRunner()
            opened.callback(self.loop.close)
            self.graders = GraderPool(**config.grading.pool())
            opened.callback(self.graders.close)
            self.grader_watch = GraderWatch(self.graders)
            self.graders.start({task.grader for tasks in self.splits for task in tasks})
            if self.graders.protection is not None:
                progress.note(f"programs that models write run under: {self.graders.protection.words}")
            self.engine = make_engine(
                [*plan.table.specs.values(), *partner_specs(plan)],
                config.engine.local(deterministic=config.deterministic),
            )
            opened.callback(self.engine.shut_down)
            self.publisher = Publisher(self.engine, self.policies)
            prompts = probe_prompts(self.learners, config)
            self.parity = Parity(self.engine, self.publisher, self.policies, prompts, seed=config.seed)
            self.partners = (
                Partners(plan, folder, self.policies, self.parity, self.loop.run) if config.partners.share else None
            )
            self.inflight = InFlight(folder) if config.checkpoint.keep_inflight else None
            self.source = make_source(
                plan,
                self.renderers,
                self.engine,
                self.graders,
                self.stream,
                inflight=self.inflight,
                partners=self.partners,
            )
            opened.callback(self.source.close)
            self._opened = opened.pop_all()
        self.trackers = Trackers({}, {}, progress.note)
        self.step, self.state, self.totals = 0, dict[str, Any](), Totals()
        self.times: dict[str, float] = defaultdict(float)
        self.metrics: dict[str, float] = {}
        self.transcripts: dict[str, Transcript] = {}  # of the step's episodes and of the last evaluations
        self._collected: list[GradedEpisode] = []
        self._min_version: Mapping[str, int] = {}
        self._credit: CreditResult | None = None
        self._reasons: list[Reason] = []  # why the step teaches nothing

    def close(self) -> None:
        """End every process of the run."""
        self.trackers.close()
        self._opened.close()

    # -- one step, in the order of the loop ---------------------------------------------------------------------------

    def steps(self) -> Iterator[int]:
        """The steps that are left, from 1; ends early when the token budget is spent. `FlatRun` when no step has taught
        anything for `rollout.max_flat_steps` steps."""
        while not self.is_last:
            if self.is_flat:
                raise flat_run(self.plan, self.totals, self.step, self.folder.path)
            self.folder.forget_ends()
            self.step += 1
            self.metrics, self.times = {}, defaultdict(float)
            yield self.step

    @property
    def is_last(self) -> bool:
        """Whether no step follows this one: all are done, the token budget is spent, or the cliff guard stops."""
        budget = self.config.token_budget
        return (
            self.guard.stops(self.totals)
            or self.step >= self.config.steps
            or (budget is not None and self.totals.tokens_generated >= budget)
        )

    @property
    def is_flat(self) -> bool:
        """Whether so many steps in a row have taught nothing that the run stops."""
        most = self.config.rollout.max_flat_steps
        return bool(most) and self.totals.flat_steps >= most

    def collect(self) -> list[GradedEpisode]:
        """The step's episodes, graded. Everything that was started is counted in one outcome class; the episodes whose
        turns are to be trained are returned."""
        found = self.source.collect(self.step)
        for name, seconds in found.times.items():
            self.times[name] += seconds
        self.transcripts = dict(found.transcripts)
        self.totals.add_outcomes(found.outcomes)
        self.totals.tokens_generated += found.tokens
        self.totals.generate_s += found.generating_s
        self.metrics |= {**found.metrics, **behaviour_metrics(found.graded)}
        self.metrics["engine/tokens"] = found.tokens
        self.metrics["engine/tokens_per_s"] = found.tokens / max(found.generating_s, 1e-9)
        self._collected, self._min_version = list(found.graded), found.min_version
        return found.trained

    def credit(self, graded: Sequence[GradedEpisode]) -> CreditResult:
        """Rewards and advantages of the step's episodes."""
        failed = {g.episode.id for g in graded if g.episode.outcome_class.failed}
        result = self.plan.algorithm.advantages(
            graded, self.state, zeroed=failed if self.config.rollout.of_failures == "zero" else ()
        )
        self.state = dict(result.state)
        self.metrics |= result.metrics
        self._credit = result
        self._reasons = reasons(result, graded, policies=tuple(self.learners))
        roles = self.plan.table.train_roles
        trained = [unit for unit in result.units if unit.policy in self.learners and unit.role in roles]
        self.totals.note_advantages(all(unit.advantage == 0 for unit in trained), [one.text for one in self._reasons])
        return result

    def learn(self, graded: Sequence[GradedEpisode], result: CreditResult) -> dict[str, UpdateReport]:
        """One update of every policy that has samples; a policy without any stands still, and the step says so."""
        turns = {turn.id: turn for g in graded for turn in g.episode.turns}
        counts: Counter[str] = Counter()
        units: Sequence[CreditUnit] = result.units
        if self.partners is not None:
            units = self.partners.current(units)
            counts["partner"] = sum(len(u.turn_ids) for u in result.units) - sum(len(u.turn_ids) for u in units)
        with self._timed("learn"):
            samples = by_policy(
                build_samples(
                    units,
                    turns,
                    sampling=self.plan.sampling,
                    train_roles=self.plan.table.train_roles,
                    min_version=self._min_version,
                    counts=counts,
                )
            )
            self.monitor.before_update(self.step, graded)
            reports = self.source.beside(
                lambda: {
                    name: learner.update(samples.get(name, []), self.step) for name, learner in self.learners.items()
                }
            )
        self.metrics |= {f"samples/{name}": count for name, count in counts.items()}
        for report in reports.values():
            self.metrics |= report.metrics
        self.metrics |= self.monitor.after_update(self.step, self.metrics)
        for name in reports:
            self.parity.check_sampled(self.policies[name], self.metrics.get(f"learner/{name}/mismatch"))
        self.totals.tokens_trained += sum(s.num_trained for rows in samples.values() for s in rows)
        return reports

    def publish(self) -> None:
        """Publish what was updated, and prove that the engine follows."""
        with self._timed("publish"):
            for name, policy in self.policies.items():
                if policy.learner is None:
                    continue
                self.metrics[f"policy/{name}/version"] = self.loop.run(self.publisher.publish(policy))
                if self.step % self.config.parity.every_steps == 0:
                    difference = self.loop.run(self.parity.probe(policy)).max_abs_diff
                    self.metrics[f"parity/{name}/max_abs_diff"] = difference
                    self.totals.parity_max = max(self.totals.parity_max, difference)
        self.source.updated({name: self.engine.version(name) for name in self.learners})

    def validate(self) -> bool:
        """Measure the validation set at its cadence; True when this step is the best so far. A step that is as good as
        the weights before training counts as better than these. A cliff stops the run or rolls it back, as configured;
        the test set has no part in it."""
        every = self.config.evaluation.every_steps
        if not self.splits.validation.tasks or not every or (self.step % every and not self.is_last):
            return False
        with self._timed("validate"):
            found = self.evaluate(self.splits.validation.tasks, label="validation").team
        self.metrics["validation/team"] = found.mean
        self.metrics["validation/team_low"], self.metrics["validation/team_high"] = found.low, found.high
        best = self.totals.best_validation  # NaN: nothing was graded
        is_best = found.mean > best or (self.totals.best_step == 0 and found.mean == best)
        if is_best:
            self.totals.best_validation, self.totals.best_step = found.mean, self.step
        if self.partners is not None:
            self.partners.remember(self.step, found.mean)
        self.metrics |= self.guard.note(self.totals, self.step, found, is_best=is_best)
        if self.guard.rolls_back(self.totals):
            self.progress.note(f"step {self.step}: {self.guard.roll_back(self.totals, self.step)}")
            self.publish()
        elif self.guard.stops(self.totals):
            self.progress.note(f"step {self.step}: {self.guard.stop_words(self.totals)}")
        return is_best

    def validate_start(self) -> None:
        """Measure the validation set before training: the step 0 that the best step has to beat, kept as a checkpoint.
        A resumed run has done so."""
        if self.step or self.is_last or self.totals.best_step >= 0 or not self.validate():
            return
        self.metrics["time/validate_s"] = self.times["validate"]
        self.progress.note(f"validation before training: team {self.totals.best_validation:.3f}")
        self.folder.write_metrics(0, self.metrics)
        self.trackers.log(0, self.metrics)
        self.monitor.board.remember(self.metrics)
        self.save(is_best=True)

    def record(self) -> None:
        """Write the step's episodes and metrics, and show them."""
        self.folder.write_episodes(self.step, episode_rows(self.step, self._collected, self._credit, self.transcripts))
        self.metrics |= {f"time/{name}_s": seconds for name, seconds in self.times.items()}
        self.metrics |= self.grader_watch.metrics()
        if (faults := faults_in_words(self.metrics)) is not None:
            self.progress.note(f"step {self.step}: {faults}")
        alarms = self.monitor.alarms(self.step, self.metrics)
        for words in step_notes(self._collected, self._reasons, alarms, self.plan.table.roles):
            self.progress.note(f"step {self.step}: {words}")
        self.folder.write_alarms(alarm.to_dict() for alarm in self.monitor.board.log)
        self.metrics |= self.monitor.alarm_metrics()
        self.folder.write_metrics(self.step, self.metrics)
        self.trackers.log(self.step, self.metrics)
        self.progress.step(self.step, self.metrics)

    def save(self, *, is_best: bool) -> None:
        """A checkpoint at its cadence, at the best step, at the last one and where the run stops."""
        settings = self.config.checkpoint
        if self.step % settings.every_steps and not (is_best or self.is_last or self.is_flat):
            return
        self._clock()
        extra = {
            "source": self.source.state(),
            "algorithm": self.state,
            "totals": asdict(self.totals),
            "trackers": self.trackers.ids,
            "dynamics": self.monitor.state(),
            "partners": self.partners.state() if self.partners is not None else [],
        }
        self.checkpoints.save(self.step, extra, is_best=is_best)
        if self.partners is not None:
            self.partners.tidy()
        if self.inflight is not None:
            self.inflight.forget(self.step)

    # -- the ends of a run --------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Go on from the newest checkpoint: weights, optimisers, cursor, baselines, totals; later files are removed."""
        for words in environment_changes(self.folder):
            self.progress.note(f"{words}: the resumed run may round differently")
        found, self.totals = self.checkpoints.resume(self.progress.note)
        self.progress.note(f"going on from step {found.step}" if found else "no checkpoint yet: beginning with step 1")
        InFlight(self.folder).forget(None if self.inflight is None else found.step if found else 0)
        if found is not None:
            self.step, self.state = found.step, dict(found.extra["algorithm"])
            self.source.restore(found.extra["source"], {name: one.version for name, one in self.learners.items()})
            self.monitor.restore(found.extra["dynamics"])
            if self.partners is not None:
                self.partners.restore(found.extra["partners"], self.progress.note)
            self._begun -= self.totals.wall_s
        self.track(found.extra.get("trackers", {}) if found else None)

    def track(self, ids: dict[str, str] | None = None) -> None:
        """Open the trackers, under the ids that a checkpoint has of them; without one they have seen nothing yet."""
        step = self.step if ids is not None else -1
        self.trackers = open_trackers(self.config, self.folder, step=step, saved=ids or {}, note=self.progress.note)

    def prove(self) -> None:
        """Publish all weights as they are; with the canary, prove first that the engine follows a change of any."""
        if not self.config.parity.canary:
            self.loop.run(self.publisher.start())
            return
        for name, report in self.loop.run(self.parity.canary()).items():
            if self.step == 0:  # a resumed run has counted its own: the figure is that of a run never stopped
                self.totals.parity_max = max(self.totals.parity_max, report.max_abs_diff)
            if report.blind:
                self.progress.note(f"parity of {name}: the prompts cannot show a change of {', '.join(report.blind)}")

    def load(self, checkpoint: Path) -> None:
        """Put the weights of a checkpoint into the learners and the engine."""
        self.checkpoints.load(checkpoint)
        self.loop.run(self.publisher.start())

    @property
    def best_checkpoint(self) -> Path | None:
        return self.checkpoints.best

    def evaluate(
        self, tasks: Sequence[Task], *, label: str, samples: int | None = None, greedy: bool = False
    ) -> Evaluation:
        """Run and grade `samples` episodes a task with the weights in the engine; no learning, no state changes."""
        return summarise(self.evaluation_episodes(tasks, label=label, samples=samples, greedy=greedy))

    def evaluation_episodes(
        self, tasks: Sequence[Task], *, label: str, samples: int | None = None, greedy: bool = False
    ) -> list[GradedEpisode]:
        """The graded episodes behind `evaluate`; seeds depend on the run and the label alone."""
        number = 1 if greedy else samples or self.config.evaluation.samples
        sampling = {role: self.config.eval_sampling(role, greedy=greedy) for role in self.plan.roles}
        collector = make_collector(self.plan, self.renderers, self.engine, sampling, label=label)
        try:
            collected = collector.collect(evaluation_plans(tasks, number))
            self.transcripts |= {one.id: one for one in collected.transcripts}
            return grade_episodes(collected.episodes, self.graders)
        finally:
            collector.close()

    def wall_s(self) -> float:
        self._clock()
        return self.totals.wall_s

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _clock(self) -> None:
        self.totals.wall_s = time.monotonic() - self._begun

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self.times[name] += time.monotonic() - begun
