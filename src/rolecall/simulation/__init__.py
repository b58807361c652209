"""The scheduler of `rolecall.pipeline` against a simulated clock: engines, learners and graders as cost models."""
