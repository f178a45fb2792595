"""Published contrasts that were registered before they were run, and what becomes of them in small.

A paper's package registers a file of claims under the entry points ``vlcli.claims``. Each claim names two rows of a
published table, their numbers and which of the two is higher, and two rows of a small recipe that put the same question
to a generated world.
"""
