"""Many runs as one: workflow x sharing x scale x task x algorithm x seed, from one recipe and a table of overrides."""

from rolecall.matrix.execute import Course, missing_models, plan, run_matrix
from rolecall.matrix.folder import MatrixFolder
from rolecall.matrix.spec import Cell, Matrix, load_matrix

__all__ = ["Cell", "Course", "Matrix", "MatrixFolder", "load_matrix", "missing_models", "plan", "run_matrix"]
