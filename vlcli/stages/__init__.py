"""Stages: one module per kind, each with ``run(context) -> StageResult``; ``runner`` chains them."""
