"""Times of a call: as plain PyTorch, compiled by Cutaway, and compiled by stock torch.compile.

call          `compiler_core.time`
forms         the forms of a call, and one form that is ready to be timed
faster        decides whether one call is faster than another
rounds        times all forms in turn, in rounds
saved_state   the state that functions can reach, which is restored; `state_parts` has its parts
autotune      the fastest block sizes of Triton kernels, by measurement
device_timer  how long the parts of a program take on the device
eager_graph   the operations of a captured graph in eager PyTorch
chrome_trace  `compiler_core.save_trace`
machine_load  how busy this machine is
process_state the state of the process: random numbers, modes, the environment
"""
