"""Reads and compares what the ranks of a job wrote.

reading       `compare_ranks`: a folder of any number of ranks, ours and those of ``TORCH_TRACE``
collectives   records the collectives that run in this process
"""
