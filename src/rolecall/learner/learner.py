"""A learner owns one policy's weights and optimiser, and turns samples into optimizer steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from rolecall.algorithms.loss import Loss
from rolecall.allocator import keep_freed_memory
from rolecall.dynamics.drift import ProbeRow
from rolecall.dynamics.role_gradients import RoleGradients
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.dynamics.update_watch import UpdateWatch
from rolecall.errors import ConfigError, LearnerError
from rolecall.interventions.settings import Intervention
from rolecall.learner.config import LearnerConfig
from rolecall.learner.copies import CopyGrams, copy_gradients
from rolecall.learner.interventions import Interventions
from rolecall.learner.logprobs import Split, TokenScores, token_scores
from rolecall.learner.modules import PolicyModule, enable_gradient_checkpointing
from rolecall.learner.objective import Objective, References, TokenLoss, measure
from rolecall.learner.optim import clip_factor, clip_gradients, is_out_of_memory, learning_rate, make_optimizer
from rolecall.learner.packing import (
    Microbatch,
    Weighted,
    draw,
    num_minibatches,
    pack,
    split_minibatches,
    trajectory,
)
from rolecall.learner.probe import Array, next_token_logprobs
from rolecall.learner.progress import UpdateReport, UpdateTally
from rolecall.learner.samples import scored_sample
from rolecall.learner.weights import denominator, span_weights
from rolecall.records import EMPTY, Sample


class Learner:
    """Weights, optimiser and schedule of one policy. `version` is that of the last published weights; the publisher
    moves it. The schedule moves with optimizer steps only, so a policy without samples stands still.
    """

    def __init__(
        self,
        name: str,
        module: PolicyModule,
        config: LearnerConfig,
        loss: Loss | None = None,
        interventions: Mapping[str, Intervention] = EMPTY,
        roles: Sequence[str] = (),
    ) -> None:
        if config.schedule != "constant" and config.schedule_steps == 0:
            raise ConfigError(
                f"policy {name!r}: learner.schedule is {config.schedule!r} and learner.schedule_steps is 0; set it to "
                "the optimizer steps of the whole run (under fixed_minibatch its training steps)"
            )
        self.name = name
        self.module = module
        self.config = config
        self.objective = Objective(loss=loss or Loss(), ratio_against=config.ratio_against)
        self.parameters = module.trained()
        self.optimizer = make_optimizer(self.parameters, config)
        self.watch = UpdateWatch(list(self.parameters.values()))
        self.interventions = Interventions(interventions, roles, list(self.parameters.values()), self.optimizer)
        self.optimizer_steps = 0
        self.training_steps = 0  # those in which an optimizer step was made
        self.lr_scale = 1.0  # what the cliff guard has made of the learning rate
        self.version = 0
        self.device = next(iter(self.parameters.values())).device
        if self.device.type == "cpu":
            keep_freed_memory()
        if config.gradient_checkpointing:
            enable_gradient_checkpointing(module.model)
        with module.active() as (_, split):
            plain = config.precision == "float32" and not config.gradient_checkpointing
            self.fast = plain and split is not None and split.fast is not None

    def update(self, samples: Sequence[Sample], step: int = 0) -> UpdateReport:
        """Train on the samples of one training step; see `LearnerConfig` for what happens when that is impossible."""
        self._check(samples)
        config = self.config
        progress = UpdateTally()
        if not samples:
            return progress.report(self.name, samples, lr=0.0, skipped="no samples")
        self.interventions.begin(samples)
        fixed = config.optimizer_steps == "fixed_minibatch"
        number = num_minibatches(samples, config.minibatch_sequences) if fixed else config.minibatches
        parts = split_minibatches(samples, number, config.seed, step)
        progress.sequences = [len({trajectory(sample) for sample in part}) for part in parts]
        if self.objective.needs_last(len(parts)):
            progress.last = self._score_samples([sample for part in parts for sample in part])
        offset = 0
        for part in parts:
            try:
                self._optimizer_step(part, offset, step, progress)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                self._fail("oom", f"step {step}: out of memory: {error}", progress)
            offset += len(part)
        self.training_steps += progress.steps > 0
        return progress.report(self.name, samples, lr=self.optimizer.param_groups[0]["lr"])

    def score(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> list[list[float]]:
        """Log-probabilities of given completions after given prompts, [sequence][token], by the path that trains."""
        samples = [scored_sample(self.name, prompt, completion, temperature) for prompt, completion in sequences]
        scored = self._score_samples(samples)
        return [scored[number].tolist() for number in range(len(samples))]

    def watch_with(self, settings: DynamicsSettings) -> None:
        """Watch the optimizer steps with these settings, from now on."""
        self.watch = UpdateWatch(list(self.parameters.values()), settings)

    def next_token_logprobs(self, rows: Sequence[ProbeRow], *, base: bool = False) -> Array:
        """Log-probabilities of every token at the rows' positions under the present weights, or under those before any
        training, [positions of all rows in order][vocabulary]."""
        untrained = base and self.optimizer_steps == 0 and self.module.starts_as_base
        place = self.module.base() if base and not untrained else self.module.active()
        with torch.no_grad(), place as (model, split), self._autocast():
            found = next_token_logprobs(model, split, rows, self.config.microbatch_tokens, self.device)
        if base and not self.objective.needs_base():
            self.module.forget_base()
        return found

    @property
    def vocab_size(self) -> int:
        return int(self.module.model.config.get_text_config().vocab_size)

    def state_dict(self) -> dict[str, Any]:
        """All but the weights: optimiser, counters, running means of gradients, and the parameter names that the
        optimiser's order stands for."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "optimizer_steps": self.optimizer_steps,
            "training_steps": self.training_steps,
            "lr_scale": self.lr_scale,
            "version": self.version,
            "parameters": list(self.parameters),
            "watch": self.watch.state_dict(),
            "interventions": self.interventions.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["parameters"] != list(self.parameters):
            raise LearnerError(f"the saved optimiser of policy {self.name!r} belongs to other parameters")
        self.optimizer.load_state_dict(state["optimizer"])
        self.watch.load_state_dict(state.get("watch", {"means": {}}))
        self.interventions.load_state_dict(state["interventions"])
        self.optimizer_steps = state["optimizer_steps"]
        self.training_steps = state.get("training_steps", self.optimizer_steps)
        self.lr_scale = state.get("lr_scale", 1.0)
        self.version = state["version"]

    def _optimizer_step(self, samples: Sequence[Sample], offset: int, step: int, progress: UpdateTally) -> None:
        """One optimizer step on `samples`, numbered from `offset`, unless nothing can be learned from them."""
        config, loss = self.config, self.objective.loss
        total = denominator(samples, count_zero_advantage=loss.zero_advantage_in_denominator)
        weights = span_weights(samples, total, loss.aggregate, config.role_weights)
        weights = self.interventions.weights(samples, weights)
        rows = [
            Weighted(sample=sample, weights=weight, number=offset + index)
            for index, (sample, weight) in enumerate(zip(samples, weights, strict=True))
        ]
        computed, probed, share = self._choose(rows, step)
        version = self.version if progress.steps == 0 else None
        self._probe(probed, share, version, progress)
        tokens = Counter[str]()
        for sample in samples:
            tokens[sample.role] += sample.num_trained
        if not computed:
            progress.skip("zero", "every advantage is 0")
            if self.watch.gradients:
                progress.add_roles(tokens, {})
            return
        copies = self._copies(rows, computed, step, progress)
        value, gradients, gram = self._accumulate(computed, version, progress)
        norm = gradients.norm
        if not (math.isfinite(value) and math.isfinite(norm)):
            self._fail("nonfinite", f"step {step}: loss {value:g}, gradient norm {norm:g}", progress)
            return
        persistence = self.watch.before_step(gradients)
        scaled = self.interventions.before_clip(gradients, progress.roles)
        clip_gradients(self.parameters, scaled, config.max_grad_norm)
        fixed = config.optimizer_steps == "fixed_minibatch"
        done = self.training_steps if fixed else self.optimizer_steps
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, done) * self.lr_scale
        self.optimizer.step()
        self.interventions.after_step(clip_factor(scaled, config.max_grad_norm))
        applied = self.watch.after_step()
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer_steps += 1
        progress.losses.append(value)
        progress.grad_norms.append(norm)
        roles = gradients.roles
        products = {(a, b): row[j] for a, row in zip(roles, gram, strict=False) for j, b in enumerate(roles)}
        if self.watch.gradients:
            progress.add_roles(tokens, products)
            progress.add_step(roles, products, persistence, applied)
            progress.add_copies(copies)

    def _accumulate(
        self, rows: Sequence[Weighted], version: int | None, progress: UpdateTally
    ) -> tuple[float, RoleGradients, list[list[float]]]:
        """Forward and backward of an optimizer step, role by role; the loss, the gradients, their inner products."""
        batches = pack(rows, self.config.microbatch_tokens, device=self.device, share=self.fast)
        gradients = self.watch.collect(list(batches), keep=self.interventions.needs_gradients)
        self.optimizer.zero_grad(set_to_none=True)
        value = 0.0
        for role, packed in batches.items():
            for batch in packed:
                value += self._backward(batch, version, progress)
            with self.watch.timed():
                gradients.take(role)
        with self.watch.timed():
            gram = gradients.finish()
        return value, gradients, gram

    def _copies(
        self, rows: Sequence[Weighted], computed: Sequence[Weighted], step: int, progress: UpdateTally
    ) -> dict[str, CopyGrams]:
        """The gradients of the copies of roles, where the step is due for them; gradients are empty afterwards."""
        if not self.watch.settings.copies_due(step):
            return {}

        def backward(inside: Sequence[Weighted]) -> None:
            packed = pack(inside, self.config.microbatch_tokens, device=self.device, share=self.fast)
            for batch in (batch for batches in packed.values() for batch in batches):
                self._loss(batch, progress)

        with self.watch.timed_copies():
            self.optimizer.zero_grad(set_to_none=True)
            parameters = list(self.parameters.values())
            return copy_gradients(
                rows,
                computed,
                parameters,
                backward,
                seed=self.config.seed,
                step=step,
                reduce=self.watch.sketch,
            )

    def _loss(self, batch: Microbatch, progress: UpdateTally) -> tuple[Tensor, References, TokenScores, TokenLoss]:
        """Forward and backward of one microbatch: its loss, and what that was made of."""
        references = self._references(batch, progress)
        with self.module.active() as (model, split):
            entropy_gradient = self.objective.loss.entropy_coef != 0.0
            scores = self._forward(model, split, batch, entropy_gradient=entropy_gradient)
            made = self.objective(batch, scores, references)
            value = (batch.weights_N * made.loss_N).sum()
            value.backward()  # type: ignore[no-untyped-call]
        return value, references, scores, made

    def _backward(self, batch: Microbatch, version: int | None, progress: UpdateTally) -> float:
        """Forward and backward of one microbatch, measured; returns its loss."""
        value, references, scores, made = self._loss(batch, progress)
        figure = float(value.detach())
        progress.role_loss.add(batch.role, figure, float(batch.weights_N.sum()))
        measure(progress.tallies, batch, scores, made, references, self.objective, share=1.0, version=version)
        return figure

    @torch.no_grad()
    def _probe(self, rows: Sequence[Weighted], share: float, version: int | None, progress: UpdateTally) -> None:
        """Measure units whose loss is known to be 0, without a backward pass."""
        packed = pack(rows, self.config.microbatch_tokens, device=self.device, share=self.fast)
        for batch in (batch for batches in packed.values() for batch in batches):
            references = self._references(batch, progress)
            with self.module.active() as (model, split):
                scores = self._forward(model, split, batch)
            made = self.objective(batch, scores, references)
            measure(progress.tallies, batch, scores, made, references, self.objective, share=share, version=version)

    def _choose(self, rows: Sequence[Weighted], step: int) -> tuple[list[Weighted], list[Weighted], float]:
        """The rows to train, those of the others to measure all the same, and which share of their tokens that is."""
        if not self.config.skip_zero_advantage:
            return list(rows), [], 1.0
        idle = [
            row
            for row in rows
            if self.objective.is_idle(row.sample.role, [span.advantage for span in row.sample.spans])
        ]
        numbers = {row.number for row in idle}
        computed = [row for row in rows if row.number not in numbers]
        idle.sort(key=lambda row: draw(self.config.seed, step, row.sample.spans[0].turn_id, row.number))
        probed = idle[: math.ceil(self.objective.loss.probe_share * len(idle))]
        total = sum(row.sample.num_trained for row in idle)
        return computed, probed, sum(row.sample.num_trained for row in probed) / total if total else 1.0

    @torch.no_grad()
    def _score_samples(self, samples: Sequence[Sample]) -> dict[int, Tensor]:
        """Log-probabilities of all trained tokens under the present weights, by sample number."""
        rows = [
            Weighted(sample=sample, weights=(0.0,) * len(sample.spans), number=number)
            for number, sample in enumerate(samples)
        ]
        scored: dict[int, Tensor] = {}
        packed = pack(rows, self.config.microbatch_tokens, device=self.device, share=self.fast)
        with self.module.active() as (model, split):
            for batch in (batch for batches in packed.values() for batch in batches):
                scores = self._forward(model, split, batch)
                scored.update(zip(batch.numbers, torch.split(scores.logprobs_N, list(batch.counts)), strict=True))
        return scored

    def _references(self, batch: Microbatch, progress: UpdateTally) -> References:
        last = torch.cat([progress.last[number] for number in batch.numbers]) if progress.last else None
        if not self.objective.needs_base(batch.role):
            return References(last_N=last)
        with torch.no_grad(), self.module.base() as (model, split):
            base = self._forward(model, split, batch).logprobs_N
        return References(base_N=base, last_N=last)

    def _forward(
        self, model: Any, split: Split | None, batch: Microbatch, *, entropy_gradient: bool = False
    ) -> TokenScores:
        with self._autocast():
            return token_scores(
                model,
                split,
                batch.input_ids_BT,
                batch.rows_N,
                batch.columns_N,
                batch.targets_N,
                batch.temperatures_N,
                layout=None if batch.positions_BT is None or batch.mask is None else (batch.positions_BT, batch.mask),
                fast=self.fast,
                entropy_gradient=entropy_gradient,
            )

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.config.precision != "bfloat16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _fail(self, kind: str, reason: str, progress: UpdateTally) -> None:
        """Leave the weights as they are; skip the optimizer step or stop the run, as configured."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.config.on_nonfinite == "stop":
            raise LearnerError(
                f"policy {self.name!r}, {reason}; weights are as before this optimizer step. Lower learner.lr or "
                'learner.microbatch_tokens, or set learner.on_nonfinite = "skip"'
            )
        progress.skip(kind, reason)

    def _check(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            if sample.policy != self.name:
                raise LearnerError(f"a sample of policy {sample.policy!r} reached the learner of {self.name!r}")
            if not sample.spans or not sample.num_trained:
                raise LearnerError(f"a sample of role {sample.role!r} has no trained token; leave it out")
