"""Tasks: what a benchmark asks, how it is scored, what its server wants.

A task of one's own subclasses :class:`vlcli.tasks.base.Task`; :mod:`vlcli.tasks.outputs` helps it decode and write.
"""
