"""The weight of every trained token, fixed before packing and once for each optimizer step and policy.

Because a weight depends on the whole step and never on rows, padding, microbatches or processes, those are layout: they
cannot change the gradient. Denominators of several processes add up before weights are made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rolecall.records import Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Denominator:
    """How many trained tokens, in how many turns, share the loss of one optimizer step of one policy.

    >>> Denominator(tokens=3, turns=1) + Denominator(tokens=2, turns=1)
    Denominator(tokens=5, turns=2)
    """

    tokens: int
    turns: int

    def __add__(self, other: Denominator) -> Denominator:
        return Denominator(tokens=self.tokens + other.tokens, turns=self.turns + other.turns)


def denominator(samples: Iterable[Sample], *, count_zero_advantage: bool = True) -> Denominator:
    """Count what enters the loss; with `count_zero_advantage=False` turns with advantage 0 are left out."""
    spans = [s for sample in samples for s in sample.spans if count_zero_advantage or s.advantage != 0.0]
    return Denominator(tokens=sum(span.stop - span.start for span in spans), turns=len(spans))


def span_weights(
    samples: Sequence[Sample],
    total: Denominator,
    aggregate: str = "token_mean",
    role_weights: Mapping[str, float] | None = None,
) -> list[tuple[float, ...]]:
    """The weight of one token of each span, [sample][span]; all tokens of a turn weigh the same.

    token_mean: 1 / tokens of the step. sequence_mean: 1 / (turns of the step * tokens of the turn). A role's weight
    multiplies and leaves every denominator as it is. Where only advantages that differ from 0 count and there are none,
    what is left of the loss (KL, entropy) is a mean over all samples.

    >>> from rolecall.records import Sample, Span
    >>> span = Span(turn_id="t", start=1, stop=3, advantage=1.0, version=0)
    >>> sample = Sample(policy="p", role="r", copy=0, token_ids=(5, 6, 7), logprobs=(0.0, -1.0, -1.0), spans=(span,))
    >>> span_weights([sample], Denominator(tokens=8, turns=4), "sequence_mean")
    [(0.125,)]
    """
    factors = role_weights or {}
    if not total.tokens:
        total = denominator(samples)
    if aggregate == "token_mean":
        token = 1.0 / max(total.tokens, 1)
        return [tuple(factors.get(sample.role, 1.0) * token for _ in sample.spans) for sample in samples]
    turn = 1.0 / max(total.turns, 1)
    return [
        tuple(factors.get(sample.role, 1.0) * turn / (span.stop - span.start) for span in sample.spans)
        for sample in samples
    ]
