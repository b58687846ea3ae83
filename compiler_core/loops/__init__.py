"""The loop IR: its definition, lowering, fusion and schedules.

Input: an FX graph of aten operators (a forward or a backward).  Output: an `ir.Program`, whose steps are loop nests
(`ir.Loops`), each printed as one kernel by `codegen`, and calls of PyTorch's operators (`ir.Call`).  In order:

    ir/        what a program is
    lower/     graph -> program, one loop nest for each operator that has a lowering rule
    fuse/      joins loop nests
    schedule/  splits what would keep only a part of a GPU busy, chooses block sizes, and rewrites nests for C++
"""
