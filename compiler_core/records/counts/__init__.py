"""The counts and the problems of a record as plain data, for tables, tests and other tools.

counts   graphs, graph breaks with their lines, recompiles, failures, compile seconds
"""
