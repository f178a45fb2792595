"""Dual encoders of public towers."""
