"""Plays jobs of several ranks and checks how they end; for scripts/soak and scripts/faults."""
