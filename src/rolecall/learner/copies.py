"""What the copies of a role do to its gradient: a pass of its own, after which the update is as it would be without it.

Copies answer side by side and share the weights of their role, where their gradients add up. Every trajectory of the
role lies in one cell, (its copy, the copy that chance gives it), and each cell has microbatches of its own: one pass
over its rows gives the gradients of the copies and those of the control. Neither enters the update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from rolecall.dynamics.formulas import Gram
from rolecall.dynamics.role_gradients import inner_product, take_gradients
from rolecall.learner.packing import Trajectory, Weighted, draw, trajectory
from rolecall.records import Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyGrams:
    """Inner products of the gradients of a role's copies, [copies][copies], and those of the control. `units`: the
    role's trajectories in the optimizer step, idle ones too: the batch that the figures belong to."""

    true: Gram
    control: Gram
    units: int


def relabelled(samples: Iterable[Sample], seed: int, step: int) -> dict[Trajectory, int]:
    """The copy that chance gives each trajectory of one role: as many to each copy as it has, dealt in an order that
    is drawn from `seed`, `step` and the trajectory alone."""
    trajectories = sorted({trajectory(sample) for sample in samples})
    order = sorted(trajectories, key=lambda one: draw(seed, step, "copies", *one))
    return dict(zip(order, sorted(copy for _, _, copy in trajectories), strict=True))


def copy_gradients(
    rows: Sequence[Weighted],
    computed: Sequence[Weighted],
    parameters: Sequence[nn.Parameter],
    backward: Callable[[Sequence[Weighted]], None],
    *,
    seed: int,
    step: int,
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, CopyGrams]:
    """The copies of every role that has two or more among `rows`, the samples of one optimizer step; `computed` are
    those of them with a gradient. `backward` accumulates the gradient of some rows; gradients are empty before and
    after. `reduce` makes less of a flat gradient (a sketch). Memory: one vector a copy, and one for its control.

    A role is left out where one of its copies, or of the control's, has no row with a gradient: beside a copy of 0 the
    others' sum is large over the mean norm, however they pull (a copy alone would seem amplified by N).
    """
    by_role: dict[str, list[Sample]] = defaultdict(list)
    for row in rows:
        by_role[row.sample.role].append(row.sample)
    found: dict[str, CopyGrams] = {}
    for role, samples in sorted(by_role.items()):
        copies = sorted({sample.copy for sample in samples})
        if len(copies) < 2:
            continue
        labels = relabelled(samples, seed, step)
        cells: dict[tuple[int, int], list[Weighted]] = defaultdict(list)
        for row in computed:
            if row.sample.role == role:
                cells[row.sample.copy, labels[trajectory(row.sample)]].append(row)
        true: dict[int, Tensor] = {}
        control: dict[int, Tensor] = {}
        for (copy, label), inside in sorted(cells.items()):
            backward(inside)
            vector = take_gradients(parameters)
            vector = vector if reduce is None else reduce(vector)
            _add(control, label, vector.clone())
            _add(true, copy, vector)
        if len(true) == len(control) == len(copies):
            found[role] = CopyGrams(true=_gram(true, copies), control=_gram(control, copies), units=len(labels))
    return found


def _add(sums: dict[int, Tensor], copy: int, vector: Tensor) -> None:
    """Add to a copy's sum; the first vector becomes the sum."""
    if copy in sums:
        sums[copy] += vector
    else:
        sums[copy] = vector


def _gram(vectors: Mapping[int, Tensor], copies: Sequence[int]) -> Gram:
    """Inner products between copies."""
    gram = [[0.0] * len(copies) for _ in copies]
    for i, left in enumerate(copies):
        for j, right in enumerate(copies[i:], i):
            gram[i][j] = gram[j][i] = inner_product(vectors[left], vectors[right])
    return gram
