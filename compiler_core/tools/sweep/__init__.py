"""Sweeps: many models compiled one after the other, each in its own process, with a row of results for each.

sweeping    `sweep`: gives the cases to an executor, waits, and resumes what was stopped
cases       what one case is, and how another process makes its model
ready       lists of cases: torchvision, timm, transformers, the operator database, folders of captured graphs
isolate     runs one case in its own process, with limits of time and memory
child       the program of that process
measure     what is measured of one case
store       the file with the results (SQLite), which many workers write to
results     the rows as a table, flags by threshold, breaks across models, two sweeps compared
executors   executors of other packages in the form that `sweep` needs
"""
