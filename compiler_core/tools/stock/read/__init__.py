"""Parsers of the texts with which PyTorch describes its compiles.

``trace_event``    one event of PyTorch's structured trace
``graph_text``     a printed FX graph: nodes, edges and the user's lines
``guard_tree``     Dynamo's printed guard tree
``guard_meaning``  what a guard requires, in plain words
``source_names``   sources of values, as the user would write them
``wrapped_calls``  arguments of PyTorch's own modules that were compiled themselves
``breaks``         graph breaks: messages, their reasons, and the values that resume functions get
``recompile_reasons``  reasons for recompiles
``cache_keys``     lookups in PyTorch's caches of graphs, and their keys
``output_code``    Inductor's generated Python file: kernels, launches and memory plan
``origins``        finds the nodes of one graph that a node of a later graph came from
``bytecode_listing``  the source lines of a bytecode listing
``placeholders``   stand for texts that are printed later
``lines, stages``  the user's source lines; PyTorch's phases as stages of the record
"""
