"""The matrix file that docs/study.md shows is one: it reads, and has the cells that the page says."""

from __future__ import annotations

from pathlib import Path

from rolecall.matrix import load_matrix

ROOT = Path(__file__).parents[2]


def test_the_matrix_of_the_docs_has_ten_cells_and_two_controls(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    block = page.split("```toml\n# my_matrix.toml")[1].split("```")[0]
    file = tmp_path / "my_matrix.toml"
    file.write_text("#" + block.replace('base = "', f'base = "{ROOT}/'), encoding="utf-8")
    matrix = load_matrix(file)
    first = [cell for cell in matrix.cells if cell.seed == 0]
    assert [cell.name.removesuffix("-s0") for cell in first] == [
        "Voting-IP-plain",
        "Voting-IP-anchored",
        "Voting-SP-plain",
        "EvalOpt-IP-plain",
        "EvalOpt-SP-plain",
        "SA",
    ]
    assert (len(matrix.cells), first[-1].tokens_of) == (12, "Voting-SP-plain-s0")
    assert first[1].config.interventions["voter"].kl_anchor == 0.05
