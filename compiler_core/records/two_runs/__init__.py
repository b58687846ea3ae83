"""Compares two runs: `compare` by the user's lines, `line_facts` what a run has at each, `key_differences` caches."""
