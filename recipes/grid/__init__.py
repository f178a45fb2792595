"""Grids that no paper has: what applies, crossed, each cell measured or left out for a reason."""
