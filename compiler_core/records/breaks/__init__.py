"""What the graph breaks of a record did.

divided_graphs   which breaks divide a graph
"""
