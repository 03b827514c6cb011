"""Those who train side by side in `benchmarks/peers.py`, each in a process of its own."""
