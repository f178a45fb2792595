"""Tests of vlcli/runner."""
