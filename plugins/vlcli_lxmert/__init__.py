"""LXMERT."""
