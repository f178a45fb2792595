"""The runner: checks a recipe before its first stage, runs the stages in order or side by side, keeps their records."""
