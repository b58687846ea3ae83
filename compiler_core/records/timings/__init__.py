"""The times of a call in several forms, the verdict on a record, and the times of its parts.

timings      the times, and their table
faster       the rule by which a call is called faster than another
verdict      one line: was compiling worth it?
part_times   the time of compiling by line, and the times of graphs and of eager PyTorch's operations
guard_times  what checks of guards usually cost
"""
