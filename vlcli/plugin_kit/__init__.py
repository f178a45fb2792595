"""Checks of plugin packages, and a package to begin with."""
