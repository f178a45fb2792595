"""Tools beside the stages: parameter counts, data statistics, search indexes, result tables."""
