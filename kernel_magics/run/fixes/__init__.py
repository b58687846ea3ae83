"""Changes of the user's code that remove a problem: made from the code at its line, tried, and offered if they help.

rewrites      makes a change of the statement at a line, with `expressions` for those inside
trial         runs the cell with the change, and compares it with plain PyTorch
live_code     runs edited text in place of functions that are defined already
"""
