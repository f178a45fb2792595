"""LXMERT's variants, and the ablations of its Tables 2 to 5."""
