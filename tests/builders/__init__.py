"""Tests of vlcli/builders."""
