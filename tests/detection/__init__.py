"""Tests of vlcli/detection."""
