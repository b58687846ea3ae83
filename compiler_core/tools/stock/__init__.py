"""Stock `torch.compile`, observed: it runs unchanged, and a record is filled from what PyTorch reports.

The input are events from `observer` (a running compile), `trace_logs` (files of ``TORCH_TRACE``) or `cached_compiles`
(what was compiled before); the output is a `Record`.

``hooks/``  access to PyTorch while it compiles; `uncached` makes it compile a function again
``build/``  from events to the record; start at ``record_builder.py``
``read/``   parsers of PyTorch's texts; ``trace_event.py`` is one event

`source_files` puts the lines that events refer to into the record.  `inductor_passes` and `inductor_rules` run passes,
rules and edits of the user in stock.
"""
