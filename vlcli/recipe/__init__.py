"""Recipes: read, merge, override, check, plan. Nothing here imports torch.

    from vlcli.recipe.load import load
    from vlcli.recipe.plan import RunOptions, make

    resolved = load("quickstart", ["stages.pretrain.epochs=3"])   # extends and overrides applied, every fault at once
    planner, steps = make(resolved, RunOptions())                  # what a run would do with each stage, and why

``schema`` says what may be written; ``yaml`` reads it with lines; ``merge`` is ``extends``; ``overrides`` the command
line; ``check`` and ``validate`` find faults; ``wiring`` knows who waits for whom; ``keys`` and ``stage_record`` what is
unchanged; ``plan`` decides.
"""
