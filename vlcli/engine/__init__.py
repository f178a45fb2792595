"""The training step and loop, optimizers, schedules, checkpoints, bundles, processes; built on accelerate."""
