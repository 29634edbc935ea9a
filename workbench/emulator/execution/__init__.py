"""The machine: batches of CTAs, the interpreter, memory, barriers and counters."""
