"""Sorts the registers that a loop carries from pass to pass: those that count, and those that turn.

A counting register changes by a constant in each pass, since it is only moved and added to: a trip count, a pointer,
the index of a tile. Any other register that depends on itself turns: the stage of a pipeline, which goes back to 0, and
its phase, which flips. Between two turns such a register looks as if it counted, and what is computed from it too.

What is computed from a counting register by a division, a mask or a load jumps: the row of a tile's index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.emulator.ptx.instruction import Instruction

PURE = frozenset(("arithmetic", "move", "address", "conversion", "warp"))  # roles that compute from registers alone
# opcodes whose result counts if an operand does; compilers write `or` for sums of disjoint bits
LINEAR = frozenset(("add", "sub", "mul", "mad", "shl", "or", "neg", "not", "mov", "cvt", "cvta", "setp"))


class LoopRegisters:
    """The registers of a kernel that executes `instructions`: `control` decides control flow or waits for a phase,
    `counting` counts, `turning` turns or depends on what turns, `jumping` depends on what jumps.

    `may_stay` says whether what turns may stay as it is if passes are left out: no branch depends on it, and no
    mbarrier's address or phase depends on what counts.
    """

    def __init__(self, instructions: list[Instruction]) -> None:
        writers = _find_writers(instructions)
        sources = {
            name: {read for ins in found for read in (*ins.values, *ins.guards)} for name, found in writers.items()
        }
        guards = {name for ins in instructions for name in ins.guards}
        ends = {name for ins in instructions if ins.form.parks or ins.form.ends_block for name in ins.values}
        self.control = _find_sources(guards | ends, sources)
        counting, turning = set[str](), set[str]()
        steps = dict(sources)  # without first values: what begins as a stage may count from there
        for cycle in find_cycles(sources):
            within = [
                ins for name in cycle for ins in writers[name] if not cycle.isdisjoint((*ins.values, *ins.guards))
            ]
            adds = all(_adds(ins, cycle) for ins in within)
            (counting if adds else turning).update(cycle)
            steps |= {name: {read for ins in within if name in ins.writes for read in ins.values} for name in cycle}
        self.counting = counting
        self.turning = _find_dependents(turning, steps)
        self.jumping = _find_jumping(instructions, counting)
        self.may_stay = self._can_stay(instructions, steps)

    def _can_stay(self, instructions: list[Instruction], steps: Mapping[str, set[str]]) -> bool:
        branches = {
            name
            for ins in instructions
            if ins.form.role not in PURE or not self.turning.issuperset(ins.writes)
            for name in (*ins.guards, *(ins.values if ins.form.ends_block else ()))
        }
        barriers = {name for ins in instructions if ins.form.role == "mbarrier" for name in ins.reads}
        return self.turning.isdisjoint(_find_sources(branches, steps)) and self.counting.isdisjoint(
            _find_sources(barriers, steps)
        )


def _find_writers(instructions: list[Instruction]) -> dict[str, list[Instruction]]:
    """The instructions that compute each register from others."""
    writers: dict[str, list[Instruction]] = {}
    for ins in instructions:
        if ins.form.role in PURE:
            for name in ins.writes:
                writers.setdefault(name, []).append(ins)
    return writers


def _adds(ins: Instruction, cycle: frozenset[str]) -> bool:
    """Whether an instruction only moves a register of the cycle, or adds an integer that is not one of them."""
    own = [name for name in ins.values if name in cycle]
    if len(own) != 1 or len(ins.writes) != 1 or ins.form.float_type or not cycle.isdisjoint(ins.guards):
        return False
    if ins.opcode == "sub":
        return ins.values[0] == own[0]
    return ins.opcode == "mov" or (ins.opcode == "add" and not ins.form.carry_out)


def _find_jumping(instructions: list[Instruction], counting: set[str]) -> set[str]:
    """The registers that depend on a jump of what counts."""
    sources: dict[str, set[str]] = {}
    for ins in instructions:
        for name in ins.writes:
            sources.setdefault(name, set()).update(ins.reads)
    varying = _find_dependents(counting, sources)
    jumps = (ins for ins in instructions if ins.opcode not in LINEAR and not varying.isdisjoint(ins.reads))
    return _find_dependents({name for ins in jumps for name in ins.writes}, sources)


def _find_sources(names: Iterable[str], sources: Mapping[str, set[str]]) -> set[str]:
    """The registers, and all that they are computed from."""
    found, left = set(names), list(names)
    while left:
        new = sources.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def _find_dependents(names: set[str], sources: Mapping[str, set[str]]) -> set[str]:
    """The registers, and all that are computed from them."""
    targets: dict[str, set[str]] = {}
    for name, reads in sources.items():
        for read in reads:
            targets.setdefault(read, set()).add(name)
    return _find_sources(names, targets)


def find_cycles(sources: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected components that have a cycle (Tarjan, 1972), without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    done: set[str] = set()
    found: list[frozenset[str]] = []
    for root in sources:
        work = [(root, iter(sources[root]))] if root not in number else []
        while work:
            name, left = work[-1]
            if name not in number:
                number[name] = low[name] = len(number)
                stack.append(name)
            child = next((one for one in left if one in sources and one not in done), None)
            if child is not None and child not in number:
                work.append((child, iter(sources[child])))
                continue
            if child is not None:
                low[name] = min(low[name], number[child])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[name])
            if low[name] == number[name]:
                at = stack.index(name)
                group = frozenset(stack[at:])
                del stack[at:]
                done |= group
                if len(group) > 1 or name in sources[name]:
                    found.append(group)
    return found


__all__ = ["LoopRegisters", "find_cycles"]
