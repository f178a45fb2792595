"""Computes tables of results over seeds (intervals, paired differences), and writes their files and figures."""
