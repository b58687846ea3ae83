"""Offline pages about many records: a page with tables, and beside it a page for each record.

tables         pages with tables that can be sorted and filtered
record_pages   the records' explorers, which load when they are opened
sweep_page     the page of a sweep
ranks_page     the page of a job's ranks
"""
