"""Tests of vlcli/images."""
