"""Lookups in the caches of compiled graphs, with their keys, field by field (`lookups`)."""
