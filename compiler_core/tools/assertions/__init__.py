"""Assertions about compiles, for the tests of other projects.

compiles        `assert_compiles`: how many graphs and recompiles a call takes
pytest_plugin   the same as a fixture of pytest, for projects that name this plugin
"""
