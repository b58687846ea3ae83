"""Shows and saves a record.

`record_view` chooses the front end: the widget of `explorer` in a notebook (with the `messages` that the page may send
and the `outputs` that show it), or the text of `summary` in a terminal.  `report` writes one HTML file, `export` the
files of ``--save``; `assets` finds the built browser code.
"""
