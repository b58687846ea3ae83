"""Advice on the problems of a cell, tried: changes of the code, the inputs or the options, offered while they may help.

finding       the changes that the advice stands for
rewrites      makes a change of the statement at a line, with `expressions` for those inside
trial         runs the cell with each change, and compares it with plain PyTorch
live_code     runs edited text in place of functions that are defined already, and lines before a cell's units
"""
