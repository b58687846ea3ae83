"""Fusion: which loops become one kernel."""
