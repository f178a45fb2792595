"""Former names of options of components, for messages on recipes that use them."""

# Present names by ``KIND.COMPONENT.FORMER``, such as ``{"models.deit.dim": "hidden"}``
RENAMED: dict[str, str] = {}
