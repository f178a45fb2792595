"""Recipes that ship with vlcli; installed as the package ``vlcli_recipes``."""
