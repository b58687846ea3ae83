"""The ranks of a distributed job: a file for each that survives its process, and the comparison of all.

collectives   records the collectives that run in this process
journal       a file to which a record is appended while it grows
reading       `compare_ranks`: a folder of any number of ranks, ours and those of ``TORCH_TRACE``
facts         what one rank did, as a list of facts in order that can be compared
comparison    groups of equal ranks, and the first difference of the others
"""
