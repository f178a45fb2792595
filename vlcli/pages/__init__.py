"""Writes pages about finished and unfinished runs: one HTML file each, with pictures and scripts inside."""
