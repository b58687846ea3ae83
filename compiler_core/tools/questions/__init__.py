"""What a finished record answers.  Like the record, this needs the standard library only.

problems         what cost time here or stopped the compiler, with `advice` on recompiles, `changed_nodes`,
                 `conditions` of guards and `needed_values`
verdict          whether compiling was worth it; times in words
what_failed      why a frame was compiled again, in sentences
step_states      the state of the symbolic interpreter after any recorded step
queries          why a value is kept, a size static, a node there; the first inaccurate value
costs, memory    where the time went; what holds the memory at its peak
counts           how many graphs and breaks there are
line_facts       what a run has at each of the user's lines
compare          two runs, line by line
difference_texts comparisons of two runs in words
key_differences  two lookups in a cache of compiled graphs, field by field
"""
