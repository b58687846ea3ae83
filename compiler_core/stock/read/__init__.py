"""Readers of the formats in which PyTorch describes its compiles."""
