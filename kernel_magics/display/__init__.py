"""Shows and saves a record.

`record_view` chooses the front end: the widget of `explorer` in a notebook, or the text of `summary` in a terminal
(`explanation` for ``%explain``, `static_html` and `pictures/` for viewers without scripts).  `answers` says in both
terminals where time and memory went.

The widget gets a record by `packing` and shows `progress` while a cell compiles; `messages` checks what its page sends,
`page_requests` and `reruns` do what the page asks for, and `interrupt` is its button Stop.  `outputs` tracks which
outputs show an explorer, and `storage/` moves records that were shown out of memory.

`report` writes one HTML file, `export` the files of ``--save``, `offline/` pages about many records; `assets` finds the
built browser code.
"""
