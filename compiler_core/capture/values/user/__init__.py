"""Values of functions, classes and objects that programs define: functions, generators,
instances, exceptions, nn.Modules.

`descriptors.py` implements attribute lookup on classes; `object_attributes.py` implements Python's
attribute protocol for instances, and `objects.py` their special methods.
"""
