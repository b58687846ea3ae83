"""For how long tests wait for what has to happen."""

HANG_S = 600
"""After these seconds something hangs.  A limit is no measurement: what a test waits for takes this long on no machine,
however busy.  pytest's own limit of a test (pyproject.toml) is longer, so that the test says what it has waited for."""
