"""Tasks from a dataset of the hub, or from a local folder of Parquet, JSONL or CSV files, through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.errors import TaskError, boundary
from rolecall.tasks.rows import Row, RowSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Hub(RowSource):
    """A dataset by its name on the hub or a folder, e.g. `Hub(path="openai/gsm8k", subset="main",
    answer_pattern=r"#### (.+)")`.

    `path` may be a folder of data files, or one written by `save_to_disk`; a folder needs no network.
    """

    path: str
    subset: str | None = None
    split: str = "train"
    revision: str | None = None

    @property
    def label(self) -> str:
        return f"hub {self._short} ({self.split})"

    @property
    def prefix(self) -> str:
        return ":".join(["hub", self._short, *([self.subset] if self.subset else []), self.split])

    @property
    def _short(self) -> str:
        """The dataset's name; of a folder only the last part, so that ids do not change when it is moved."""
        return Path(self.path).name if Path(self.path).is_dir() else self.path

    def rows(self) -> Iterator[Row]:
        for number, row in enumerate(self._load()):
            yield Row(number, f"row {number}", dict(row))

    def _load(self) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise TaskError(
                f"{self.label} needs the `datasets` package, which does not import ({error}); install rolecall[hub]"
            ) from error
        folder = Path(self.path)
        with boundary(TaskError, f"loading {self.label} with `datasets`"):
            if (folder / "state.json").is_file():
                return datasets.load_from_disk(str(folder))
            if (folder / "dataset_dict.json").is_file():
                return datasets.load_from_disk(str(folder))[self.split]
            return datasets.load_dataset(self.path, self.subset, split=self.split, revision=self.revision)
