"""Pages about finished and unfinished runs: one HTML file each, with all that it shows inside it.

Nothing here trains; models are loaded only to look at their attention (``vlcli.pages.looks``).
"""
