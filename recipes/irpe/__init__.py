"""Rows of iRPE's tables, and what builds on them."""
