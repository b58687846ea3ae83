"""Passes over functional graphs of aten operators."""
