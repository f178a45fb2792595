"""What lies in a folder, and which reader reads it: the records that readers exchange with ``vlcli init``."""
