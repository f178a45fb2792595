"""The first recipe for a folder of one's own: what lies in it, what can be learnt from it, and a recipe for that."""
