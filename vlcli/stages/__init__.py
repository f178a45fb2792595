"""Stages: one module per kind, each with ``run(context) -> StageResult``; :mod:`vlcli.runner` runs them in order."""
