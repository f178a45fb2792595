"""Published checkpoints: which files exist, their layouts, and how a file is recognised and tried without its weights.

A package registers a file ``checkpoints.yaml`` under the entry points ``vlcli.checkpoints``. It says of each layout, by
short rules, which tensors it holds, and of each published file where it comes from and which model reads it.
"""
