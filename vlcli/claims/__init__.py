"""Registers published contrasts before they are run, and judges them in small.

A paper's package registers a file of claims under the entry points ``vlcli.claims``: two rows of a published table, and
two rows of a small recipe that put the same question to a generated world.
"""
