"""The parts of `graph_builder.Capture`, each a base class of the next.

`guard_collector.py` collects guards, `outside_objects.py` maps outside objects to values, and `graph_inputs.py` makes
tensors and numbers inputs of the graph.
"""
