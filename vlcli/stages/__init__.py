"""Runs stages: one module per kind, each with ``run(context) -> StageResult``."""
