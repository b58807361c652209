"""Your own algorithm: five small choices under one name. `python examples/05_own_algorithm.py`

In a recipe, with the folder of this file on the Python path:

    [algorithm]
    name = "05_own_algorithm:half_team"
    team_weight = 0.25
    n = 4
"""

from __future__ import annotations

from rolecall.algorithms import Algorithm, Loss
from rolecall.credit import Grouping, LeaveOneOut
from rolecall.records import Grade, GradeStatus
from rolecall.rewards import Mixed
from rolecall.testing import check_algorithm
from rolecall.testing_credit import made_episode, report, solution


def half_team(team_weight: float = 0.5) -> Algorithm:
    """Every turn earns a mix of its own truth and of the team's outcome, compared by leave-one-out within its role."""
    return Algorithm(
        name="half_team",
        reward=Mixed(weights={"correct": 1 - team_weight, "team": team_weight}),
        grouping=Grouping(unit="turn", peers="task_role"),
        estimator=LeaveOneOut(),
        loss=Loss(ratio="turn", clip_low=0.1, clip_high=0.1),
    )


def main() -> None:
    complaints = check_algorithm(half_team())
    assert not complaints, complaints
    right = Grade(status=GradeStatus.RIGHT, score=1.0)
    episodes = [
        made_episode(solution(True), report("correct"), index=0, team=right),
        made_episode(solution(False), report("wrong"), index=1),
        made_episode(solution(False), report("correct"), index=2),
    ]
    for unit in half_team().advantages(episodes).units:
        print(f"{unit.id} ({unit.role}): reward {unit.reward:.2f}, advantage {unit.advantage:+.3f}")


if __name__ == "__main__":
    main()
