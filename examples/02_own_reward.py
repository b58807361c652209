"""Your own reward: right answers, a little more for short ones. `python examples/02_own_reward.py`

In a recipe, with the folder of this file on the Python path:

    [algorithm]
    name = "agent_grpo"
    reward = { name = "02_own_reward:RightAndShort", limit = 16 }
"""

from __future__ import annotations

from dataclasses import dataclass

from rolecall.records import GradedEpisode, Reward
from rolecall.rewards import AgentSpecific
from rolecall.testing import check_reward
from rolecall.testing_credit import made_episode, report, solution


@dataclass(frozen=True, kw_only=True)
class RightAndShort:
    """The agent's own truth, plus `bonus` for a right turn of at most `limit` tokens. Parts keep their names."""

    limit: int = 16
    bonus: float = 0.1

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        rewards = dict(AgentSpecific()(graded))
        for turn in graded.episode.turns:
            own = rewards[turn.id]
            if own.total == 1.0 and len(turn.completion.token_ids) <= self.limit:
                parts = {**own.parts, "short": self.bonus}
                rewards[turn.id] = Reward(parts=parts, total=own.total + self.bonus)
        return rewards


def main() -> None:
    complaints = check_reward(RightAndShort())
    assert not complaints, complaints
    graded = made_episode(solution(True), report("correct"))
    for turn in graded.episode.turns:
        given = RightAndShort()(graded)[turn.id]
        print(f"{turn.key}: total {given.total}, parts {dict(given.parts)}")


if __name__ == "__main__":
    main()
