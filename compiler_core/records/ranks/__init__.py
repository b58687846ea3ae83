"""The ranks of a distributed job: a file for each that survives its process, and the comparison of all.

collectives   the collectives that ran, in their order
growing_file  a file that is written at once, and whose end never ends the program
journal       a file to which a record is appended while it grows
facts         what one rank did, as a list of facts in order that can be compared
comparison    groups of equal ranks, and the first difference of the others
"""
