"""Finds the words of one role in captions, and rewrites captions so that they are false."""

from vlcli.data.language.rewrites import Rewrite
from vlcli.data.language.roles import Role, Span, phrases

__all__ = ["Rewrite", "Role", "Span", "phrases"]
