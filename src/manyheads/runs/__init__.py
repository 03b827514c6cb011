"""What lies on disk: the folder of a run, files that are written atomically, checkpoints, where a run is resumed."""
