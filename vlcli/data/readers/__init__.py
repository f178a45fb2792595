"""Readers of annotation files, one module per format. None of them imports torch."""
