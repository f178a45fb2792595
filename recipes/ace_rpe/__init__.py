"""ACE-RPE: baselines, the ablations of its Tables 6 to 9, and variants."""
