"""Loads, checks and plans recipes. Nothing here imports torch.

from vlcli.recipe.load import load
from vlcli.recipe.plan import RunOptions, make

resolved = load("quickstart", ["stages.pretrain.epochs=3"])   # extends and overrides applied, every fault at once
planner, steps = make(resolved, RunOptions())                  # what a run would do with each stage, and why
"""
