"""The compiled engine: PTX to machine code through LLVM, one vector of 32 lanes for each register of a warp.

The interpreter (interpreter.py) defines the semantics. A kernel is compiled block by block (program.py). Helpers in a
small subset of Python (runtime/helper_compiler.py) do the work that vectors cannot: checked memory access, counting,
scheduling, warp-wide and matrix instructions.
"""
