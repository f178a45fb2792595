"""Recipes that train on a CPU in minutes."""
