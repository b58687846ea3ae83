"""The times of a call in several forms, and the verdict on a record.

timings   the times, and their table
verdict   one line: was compiling worth it?
"""
