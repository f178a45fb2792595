"""Lists published checkpoints, recognises files by their layout, and tries them without weights.

A package registers a file ``checkpoints.yaml`` under the entry points ``vlcli.checkpoints``: layouts (rules for names
and shapes of tensors), and for each published file its source and the model that reads it.
"""
