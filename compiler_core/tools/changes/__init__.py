"""What the user changes in a compile: passes of graphs, rules of lowering and fusion, edited texts.

user_changes        what the stages call: runs passes and rules, and puts edited texts in place
pass_checks         the rules that the result of a graph pass must follow
edited_texts        edited texts of kernels, loops and wrappers
loops_from_text     reads the text of a loop nest
schedule_from_text  reads the text of a schedule
"""
