"""What words of a caption say, and captions changed so that they are no longer true."""

from vlcli.data.language.phrases import Span, phrases
from vlcli.data.language.rewrites import Rewrite
from vlcli.data.language.roles import Role

__all__ = ["Rewrite", "Role", "Span", "phrases"]
