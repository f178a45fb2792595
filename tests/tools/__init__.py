"""Tests of vlcli/tools."""
