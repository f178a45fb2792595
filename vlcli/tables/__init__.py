"""Tables of results: rows over seeds with intervals and paired differences, and their files and figures.

``results`` holds what was measured, ``statistics`` computes from that, and the other modules show both.
"""
