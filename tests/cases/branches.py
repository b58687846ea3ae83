"""Functions of cells with a branch on a tensor: one that ``torch.where`` can replace, and one that it cannot."""

BRANCHES = """\
def branch(x):
    y = x.cos()
    if y.sum() > 0:
        y = y / 2
    return y.relu()
def lopsided(x):
    y = x.sin()
    if y.sum() > 9:
        y = torch.zeros(5)
    return y.sum()
"""
