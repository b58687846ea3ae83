"""What Dynamo says about graph breaks.

``messages``     its messages: the kind, the explanation, the hints and the stack
``reasons``      their reasons, in the words that both engines share
``rest``         whether the code after a break may compute with tensors
``stack_names``  what the user wrote for the values that resume functions get
"""
