"""Which Python frames ran in a compiled call, and why each was compiled or not.

frame_watch          of our compiler
stock_frame_watch    of stock `torch.compile`
report               the frames as a table and as a tree
"""
