"""The version of vlcli, where every module may import it."""

__version__ = "0.1.0"
"""The version of vlcli."""
