"""The records that every part of rolecall exchanges: immutable, keyword-only, standard library only.

One word, one meaning. A `Task` is one problem. A `Turn` is one engine call by one role. An `Episode` is one run of a
workflow on one task. A `CreditUnit` is a set of turns that share one reward and one advantage, and a `Sample` is the
token sequence in which turns reach the learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Message(TypedDict):
    """One chat message, e.g. `{"role": "user", "content": "12*x+7=91"}`; `role` here is the chat speaker."""

    role: str
    content: str


Messages = Sequence[Message]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One problem with a stable id.

    >>> Task(id="aime:4", question="Find x.", answer="117").grader
    'math'
    """

    id: str
    question: str
    answer: str | None
    source: str = ""
    grader: str = "math"
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are drawn: logits / temperature, then top-k, then top-p; `top_k=0` and `top_p=1` are off.

    `temperature=0` is greedy. `max_tokens` bounds the completion, the end token included; `max_prompt_tokens` bounds
    the prompt, and `overlong` says what happens to a longer one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 1024
    max_prompt_tokens: int = 32768
    overlong: Literal["fail", "truncate_left"] = "fail"  # raise, or drop the oldest prompt tokens

    def __post_init__(self) -> None:
        checks = {
            "temperature": (0 <= self.temperature < math.inf, "0 (greedy) or more, and finite"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
            "top_k": (self.top_k >= 0, "0 (off) or more"),
            "max_tokens": (self.max_tokens >= 1, "1 or more"),
            "max_prompt_tokens": (self.max_prompt_tokens >= 1, "1 or more"),
            "overlong": (self.overlong in ("fail", "truncate_left"), "'fail' or 'truncate_left'"),
        }
        for name, (good, wanted) in checks.items():
            if not good:
                raise ValueError(f"sampling.{name} is {getattr(self, name)!r}; wanted {wanted}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def truncates_support(self) -> bool:
        """Whether the sampling distribution leaves out tokens that the policy could produce."""
        return not self.greedy and (self.top_p < 1.0 or self.top_k > 0)


class Key(NamedTuple):
    """Names a call inside an episode: the role, which copy of it, and the how-manieth call of that copy.

    >>> str(Key("voter", 2, 0))
    'voter.2:0'
    """

    role: str
    copy: int
    call: int

    def __str__(self) -> str:
        """For people only; nothing parses it."""
        copy = f".{self.copy}" if self.copy else ""
        return f"{self.role}{copy}:{self.call}"


class Stop(StrEnum):
    """Why a completion ended: an end token, the length limit, or an abort before either."""

    EOS = "eos"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointReply:
    """What an endpoint returned: text, and its own counts of tokens (None: it did not say). `text` is what other roles
    may see, None when the reasoning before it did not end.

    >>> EndpointReply(text="7", reasoning="3 and 4", num_tokens=12, num_prompt_tokens=30).text
    '7'
    """

    text: str | None
    reasoning: str = ""
    num_tokens: int | None = None
    num_prompt_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What an engine sampled: one log-probability (natural log, under the sampling distribution after temperature and
    truncation) and one policy version per token; the end token is included when it was sampled. What an endpoint wrote
    has no tokens here, and is never trained: `endpoint` holds its text.

    >>> Completion(token_ids=(7, 2), logprobs=(-0.1, -0.2), versions=(3, 3), stop=Stop.EOS).version
    3
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    stop: Stop
    endpoint: EndpointReply | None = None

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"completion has {len(self.token_ids)} tokens, {len(self.logprobs)} log-probabilities and "
                f"{len(self.versions)} versions; an engine must return one of each per token"
            )

    @property
    def version(self) -> int:
        """The oldest version in the completion: what staleness is measured from."""
        return min(self.versions) if self.versions else 0

    @property
    def num_tokens(self) -> int:
        """Tokens generated; of an endpoint, as many as it says (0 when it does not)."""
        return len(self.token_ids) if self.endpoint is None else self.endpoint.num_tokens or 0


class ClaimKind(StrEnum):
    ANSWER = "answer"
    VERDICT = "verdict"
    CHOICE = "choice"


class Verdict(StrEnum):
    """What a judging role said, strictly parsed: anything that is not a clear verdict is `UNPARSED`."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What a turn's visible text asserts in checkable form: an answer, a verdict, a choice; `value=None`: unparsed.

    >>> Claim(kind=ClaimKind.ANSWER, value="42").value
    '42'
    """

    kind: ClaimKind
    value: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One engine call by one role. `about` is the id of the turn that it judges, repairs or chooses from; `parent` is
    the turn before it on its path; `peers` names the set of candidates drawn for one input, `candidate` its number.

    `prompt_ids` and `completion.token_ids` are exactly what the engine saw and sampled; `text` is what other roles may
    see (None when a truncated reasoning leaves nothing visible).
    """

    id: str
    key: Key
    policy: str
    messages: tuple[Message, ...]
    prompt_ids: tuple[int, ...]
    completion: Completion
    text: str | None
    claim: Claim | None = None
    about: str | None = None
    parent: str | None = None
    candidate: int = 0
    peers: str = ""

    @property
    def role(self) -> str:
        return self.key.role

    @property
    def truncated(self) -> bool:
        return self.completion.stop is not Stop.EOS


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a workflow returns: its final answer (None: it has none) and figures of its own.

    >>> Outcome(answer="7", figures={"rounds": 2.0}).figures["rounds"]
    2.0
    """

    answer: str | None
    figures: Mapping[str, float] = field(default_factory=dict)
    valid: bool = True
    reason: str = ""


class OutcomeClass(StrEnum):
    """How an episode ended; every episode ends in exactly one."""

    OK = "ok"
    TRUNCATED = "truncated"  # it ended, and its answer rests on a completion cut off by the length limit
    INVALID = "invalid"  # the workflow declared it invalid, or a prompt was too long
    ERROR = "error"  # the workflow, an effect or the engine raised
    TIMEOUT = "timeout"  # a deadline passed

    @property
    def failed(self) -> bool:
        """Whether the episode came to no valid end; a truncated one did."""
        return self not in (OutcomeClass.OK, OutcomeClass.TRUNCATED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Where and why something failed: the kind of `errors.py`, the place (a key, "workflow", ...), the words."""

    kind: str
    where: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """One run of a workflow on one task. `index` tells the episodes of one task in one step apart; `attempt` counts
    retries after failures. `turns` are in the order in which their calls were made.

    With agentic groups an episode is one candidate: its turn, after the `context` of the turns on its path, which are
    counted and trained as candidates of their own.
    """

    id: str
    task: Task
    index: int
    turns: tuple[Turn, ...]
    outcome: Outcome | None
    outcome_class: OutcomeClass
    failure: Failure | None = None
    attempt: int = 0
    step: int = 0
    context: tuple[Turn, ...] = ()

    @property
    def is_candidate(self) -> bool:
        """Whether it is one candidate of agentic groups: those go by the id of their turn."""
        return len(self.turns) == 1 and self.turns[0].id == self.id

    @property
    def path(self) -> tuple[Turn, ...]:
        """All turns that led to the outcome: the context, and the turns that this episode is counted by."""
        return (*self.context, *self.turns)

    def turn(self, turn_id: str) -> Turn:
        for turn in self.path:
            if turn.id == turn_id:
                return turn
        raise KeyError(f"episode {self.id} has no turn {turn_id!r}; it has {[t.id for t in self.path]}")

    @property
    def answer(self) -> str | None:
        return self.outcome.answer if self.outcome is not None else None


class GradeStatus(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"
    FAILED = "failed"  # the grader failed: its own class, never a reward of 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """What a grader says of one answer; `score` in [0, 1] is None exactly when the grader itself failed.

    >>> Grade(status=GradeStatus.RIGHT, score=1.0).right
    True
    """

    status: GradeStatus
    score: float | None
    detail: str = ""

    @property
    def right(self) -> bool:
        return self.status is GradeStatus.RIGHT


@dataclass(frozen=True, kw_only=True, slots=True)
class GradedEpisode:
    """An episode with a grade of its final answer and of every turn that claims an answer, by turn id."""

    episode: Episode
    team: Grade
    answers: Mapping[str, Grade] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """A number for a turn, made of named parts; `total` is their weighted sum. `team` tells a broadcast outcome from a
    reward of the turn's own. `total=None`: no reward could be given (a grader failed), and the turn is not trained.

    >>> Reward(parts={"correct": 1.0}, total=1.0).team
    False
    """

    parts: Mapping[str, float]
    total: float | None
    team: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CreditUnit:
    """Turns that share one reward and one advantage; units with one `peers` key are compared with each other."""

    id: str
    role: str
    policy: str
    task_id: str
    episode_id: str
    turn_ids: tuple[str, ...]
    peers: str
    reward: float
    advantage: float = 0.0
    alone: bool = False  # no peers: the advantage follows the declared rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The tokens of one turn inside a sample: positions [start, stop) of the sequence are trained. `version` is the
    oldest that they were sampled under; `versions`, one a token, where they are not all the same."""

    turn_id: str
    start: int
    stop: int
    advantage: float
    version: int
    versions: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One token sequence for the learner: a prompt and a completion, or several turns merged where each prompt extends
    the sequence before it. Only positions inside a span carry loss. `logprobs` holds the sampling log-probability at
    trained positions and 0.0 elsewhere; one entry per token.
    """

    policy: str
    role: str
    copy: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[Span, ...]
    temperature: float = 1.0
    episode_id: str = ""

    @property
    def num_trained(self) -> int:
        return sum(span.stop - span.start for span in self.spans)
