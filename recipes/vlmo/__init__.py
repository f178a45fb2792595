"""VLMo's sizes, tasks, and the ablations of its Tables 4 to 7."""
