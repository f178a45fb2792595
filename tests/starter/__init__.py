"""Tests of vlcli/starter."""
