"""``python -m vlcli`` is ``vlcli``."""

from vlcli.cli import main

main()
