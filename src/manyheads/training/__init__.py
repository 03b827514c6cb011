"""Lightning: module, objectives, optimiser, trainer, logs, checkpoints."""
