"""The command ``cutaway``: records, logs and sweeps outside a notebook.

main              the subcommands and their options
run_script        ``cutaway run``: runs a script as Python does, and records what is compiled in it
script_trials     ``--try-advice``: runs the script again with what is advised
first_difference  ``cutaway first-difference``: compares each graph of a script with plain PyTorch
sweep_command     ``cutaway sweep``: compiles many models
lessons           ``cutaway lessons``: copies the notebooks
read              reads records and logs by path, for the other subcommands
view              ``kernel_magics.view``, and views in ``cutaway open``
page_server       ``cutaway open``: serves reports on this machine's loopback address
text              how results are printed: as text, or as JSON
"""
