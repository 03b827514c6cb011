"""What lies on disk: the folder of a run, files that appear whole, checkpoints, where a run goes on."""
