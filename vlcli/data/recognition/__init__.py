"""Recognises which reader reads the data of a folder: records that readers exchange with ``vlcli init``."""
