"""From credit units and turns to the token sequences that the learner trains on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rolecall.errors import LearnerError
from rolecall.records import EMPTY, CreditUnit, Sample, Sampling, Span, Turn


def build_samples(
    units: Sequence[CreditUnit],
    turns: Mapping[str, Turn],
    *,
    sampling: Mapping[str, Sampling],
    merge: bool = True,
    train_roles: Collection[str] | None = None,
    allow_truncated_support: bool = False,
    min_version: Mapping[str, int] = EMPTY,
    counts: Counter[str] | None = None,
) -> list[Sample]:
    """One sample a turn or, with `merge`, one for each run of turns in which every prompt extends the sequence before
    it id by id (same episode, policy, role and copy, same temperature).

    `sampling` maps roles to the settings their turns were sampled with. Spans cover exactly the sampled tokens, a
    sampled end token included. A turn that several units hold (it lies on several branches) is trained once, with the
    mean of their advantages. `min_version` bounds the age of trained tokens, by policy: older ones, which come first in
    a completion, are left out of its span. `counts` gains `turns`, `merged`, `shared`, `empty` (no token was sampled:
    nothing to train), `untrained_role`, and `stale` and `stale_tokens`, turns that are too old as a whole and tokens
    that are. `LearnerError`: unknown turn, empty prompt, greedy sampling, truncated support.
    """
    counts = counts if counts is not None else Counter()
    advantages = _advantages(units, turns, train_roles, counts)
    for role in sorted({turns[turn_id].role for turn_id in advantages}):
        _check_sampling(role, sampling, allow_truncated_support)
    trajectories: dict[tuple[str, str, str, int], list[tuple[Turn, float]]] = defaultdict(list)
    for turn_id, (episode_id, values) in advantages.items():
        turn = turns[turn_id]
        if (oldest := min_version.get(turn.policy)) is not None:
            num_stale = sum(version < oldest for version in turn.completion.versions)
            counts["stale_tokens"] += num_stale
            if num_stale == len(turn.completion.versions):
                counts["stale"] += 1
                continue
        place = (episode_id, turn.policy, turn.key.role, turn.key.copy)
        trajectories[place].append((turn, sum(values) / len(values)))
    samples: list[Sample] = []
    for (episode_id, _, role, _), trained in trajectories.items():
        sequences = _sequences(trained, merge, min_version)
        counts["merged"] += len(trained) - len(sequences)
        samples += [sequence.sample(episode_id, sampling[role].temperature) for sequence in sequences]
    return samples


def by_policy(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Samples by the policy that they train, in the order in which they came."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.policy].append(sample)
    return dict(groups)


def _advantages(
    units: Sequence[CreditUnit],
    turns: Mapping[str, Turn],
    train_roles: Collection[str] | None,
    counts: Counter[str],
) -> dict[str, tuple[str, list[float]]]:
    """The episode and the advantages of every turn to train, by turn id, in the order of the units."""
    found: dict[str, tuple[str, list[float]]] = {}
    for unit in units:
        if train_roles is not None and unit.role not in train_roles:
            counts["untrained_role"] += len(unit.turn_ids)
            continue
        for turn_id in unit.turn_ids:
            if turn_id not in turns:
                raise LearnerError(
                    f"credit unit {unit.id!r} names turn {turn_id!r}, which is not among the {len(turns)} turns given"
                )
            if turn_id in found:
                found[turn_id][1].append(unit.advantage)
                counts["shared"] += len(found[turn_id][1]) == 2
            elif not turns[turn_id].completion.token_ids:
                counts["empty"] += 1
            else:
                found[turn_id] = (unit.episode_id, [unit.advantage])
                counts["turns"] += 1
    return found


def _check_sampling(role: str, sampling: Mapping[str, Sampling], allow_truncated_support: bool) -> None:
    if role not in sampling:
        raise LearnerError(f"no sampling settings for role {role!r}; there are some for {sorted(sampling)}")
    settings = sampling[role]
    if settings.greedy:
        raise LearnerError(
            f"role {role!r} was sampled greedily (temperature 0): its tokens have no log-probability to train on; set "
            "a temperature above 0, or leave the role out of train_roles"
        )
    if settings.truncates_support and not allow_truncated_support:
        raise LearnerError(
            f"role {role!r} was sampled with top_p={settings.top_p:g}, top_k={settings.top_k}: the sampled "
            "log-probabilities are renormalised over the tokens kept, the learner's are over the whole vocabulary, so "
            "ratios start away from 1; set top_p=1 and top_k=0 for training, or allow_truncated_support=true"
        )


def scored_sample(policy: str, prompt: Sequence[int], completion: Sequence[int], temperature: float) -> Sample:
    """A sample that only asks for the log-probabilities of a completion."""
    size = len(prompt) + len(completion)
    return Sample(
        policy=policy,
        role="",
        copy=0,
        token_ids=(*prompt, *completion),
        logprobs=(0.0,) * size,
        spans=(Span(turn_id="", start=len(prompt), stop=size, advantage=0.0, version=0),),
        temperature=temperature,
    )


@dataclass(slots=True)
class _Sequence:
    """A sample in the making."""

    first: Turn
    token_ids: list[int]
    logprobs: list[float]
    spans: list[Span] = field(default_factory=list)

    @classmethod
    def begin(cls, turn: Turn) -> _Sequence:
        if not turn.prompt_ids:
            raise LearnerError(f"turn {turn.id!r} of {turn.key} has an empty prompt; its first token has no condition")
        return cls(first=turn, token_ids=[], logprobs=[])

    def extends(self, turn: Turn) -> bool:
        size = len(self.token_ids)
        return len(turn.prompt_ids) >= size and list(turn.prompt_ids[:size]) == self.token_ids

    def append(self, turn: Turn, advantage: float, oldest: int | None) -> None:
        """Add a turn; its tokens of versions before `oldest` become part of what it is conditioned on."""
        new = turn.prompt_ids[len(self.token_ids) :]
        self.token_ids += new
        self.logprobs += [0.0] * len(new)
        versions = turn.completion.versions
        stale = 0 if oldest is None else next((at for at, v in enumerate(versions) if v >= oldest), len(versions))
        start = len(self.token_ids) + stale
        self.token_ids += turn.completion.token_ids
        self.logprobs += [0.0] * stale + list(turn.completion.logprobs[stale:])
        span = Span(
            turn_id=turn.id,
            start=start,
            stop=len(self.token_ids),
            advantage=advantage,
            version=min(versions[stale:], default=0),
            versions=versions[stale:] if len(set(versions[stale:])) > 1 else (),
        )
        self.spans.append(span)

    def sample(self, episode_id: str, temperature: float) -> Sample:
        return Sample(
            policy=self.first.policy,
            role=self.first.key.role,
            copy=self.first.key.copy,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            spans=tuple(self.spans),
            temperature=temperature,
            episode_id=episode_id,
        )


def _sequences(trained: list[tuple[Turn, float]], merge: bool, min_version: Mapping[str, int]) -> list[_Sequence]:
    """Lay the turns of one trajectory into as few sequences as exact prefixes allow."""
    sequences: list[_Sequence] = []
    for turn, advantage in sorted(trained, key=lambda item: (item[0].key.call, item[0].candidate)):
        open_ = [sequence for sequence in sequences if sequence.extends(turn)] if merge else []
        sequence = max(open_, key=lambda s: len(s.token_ids), default=None)
        if sequence is None:
            sequence = _Sequence.begin(turn)
            sequences.append(sequence)
        sequence.append(turn, advantage, min_version.get(turn.policy))
    return sequences
