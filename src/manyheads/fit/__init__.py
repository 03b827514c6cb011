"""Batches -> loss -> weights, through Lightning. Imported by `train` alone: Lightning takes seconds to import."""
