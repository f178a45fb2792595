"""DiMBERT's parts, its fine-tunings, and the ablations of its Tables 4 to 8."""
