"""Stock `torch.compile`, observed: it runs untouched and the record is filled beside it.

happened        one thing that PyTorch told, as plain data
versions        what the PyTorch here has of what we watch
observer        watching while it compiles; takes all hooks off again
later messages  texts that are made when they are read; what PyTorch's loggers say
fill            from what was told to the record, a method for each thing that can be told
readable guard_tree guard_costs told output_code     reading PyTorch's texts
graphs origins kernels saved code lines stages     graphs and kernels, linked to the user's lines
"""
