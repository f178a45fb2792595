"""Options of components that have a new name, which a recipe that uses the former name is told."""

RENAMED: dict[str, str] = {}
"""Present names by ``KIND.COMPONENT.FORMER``, such as ``{"models.deit.dim": "hidden"}``."""
