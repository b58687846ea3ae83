"""Symbolic values: what the symbolic interpreter keeps on its stack in place of Python objects.

They correspond to the ``VariableTracker`` classes of ``torch/_dynamo/variables``.  `base` defines `Value` and its
operations; each operation takes the interpreter, and its result is a value or a Python constant.  `builtin/` has
constants, containers and iterators, `user/` the functions, classes and objects that programs define; this folder has
`tensor`, `tensor_subclasses`, `reads` (numbers read from tensors, and conditions on buffers), `arrays` (of NumPy, with
`numpy_functions`), `contexts` (context managers and variables) and `distributed` (process groups).  `builtin/` does not
import `user/`: what it needs of rules and of `user/` it calls as methods of the interpreter or of the value.
`cached_calls` has what calls of functions with a cache did, and looks for their results.
"""
