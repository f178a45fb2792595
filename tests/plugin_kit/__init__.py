"""Tests of vlcli/plugin_kit."""
