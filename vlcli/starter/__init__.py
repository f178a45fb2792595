"""Writes a first recipe for a folder of pictures and tables (``vlcli init``)."""
