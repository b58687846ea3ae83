"""Tracing a captured graph to functional aten operators."""
