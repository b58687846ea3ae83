"""Records that were shown are kept in a file of the session; in memory each takes ten to twenty times as much.

session_file    the file
shown_records   frees the large fields of records, which are read again when they are used
"""
