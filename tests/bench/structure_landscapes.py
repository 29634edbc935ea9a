"""Rules on recorded times: how well they rank a problem that they have not seen, and which are told.

python tests/bench/structure_landscapes.py --out tests/bench/results/structure_landscapes.json
    --rules workbench/structure/kernels/kernel_rules.json      also writes the rules that come with the workbench

For each landscape: Spearman's correlation of the ranks predicted by rules learnt on all other landscapes, on those of
other problem files only (a product of another size or dtype is then not seen either), and by a forest. No GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench import landscapes
from workbench.structure.kernels.kernel_rules import KernelRule
from workbench.structure.kernels.landscape_rows import RankedRow, rank_rows
from workbench.structure.kernels.ranking import ProgramRanker
from workbench.structure.kernels.rule_learning import learn_rules
from workbench.wire import to_plain

MOST_OF_KIND = 12


def correlate(train: Sequence[RankedRow], test: Sequence[RankedRow], trees: int) -> float:
    """Spearman's correlation of predicted and recorded ranks."""
    from scipy.stats import spearmanr

    predicted = ProgramRanker(trees).fit(train).predict(test)
    found = spearmanr(predicted, [one.rank for one in test]).statistic
    return round(float(found), 4)


def learn_by_kind(rows: Sequence[RankedRow], kinds: dict[str, str]) -> dict[str, tuple[KernelRule, ...]]:
    """Kind of problem -> the rules learnt on its landscapes alone, where there are two or more and a rule is clear."""
    found = {}
    for kind in sorted(set(kinds.values())):
        own = [one for one in rows if kinds[one.landscape] == kind]
        if len({one.landscape for one in own}) > 1 and (rules := learn_rules(own, MOST_OF_KIND)):
            found[kind] = rules
    return found


def main() -> None:
    """Write the results, one landscape after the other; landscapes that are there already are not done again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rules", type=Path)
    parser.add_argument("--only", nargs="*", help="names of landscapes")
    arguments = parser.parse_args()
    places = landscapes.landscapes()
    rows = rank_rows(places.items())
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"landscapes": {}}
    origin = {name: str(place.facts["origin"]) for name, place in places.items()}
    for name in arguments.only or places:
        if name in found["landscapes"]:
            continue
        test = [one for one in rows if one.landscape == name]
        others = [one for one in rows if one.landscape != name]
        foreign = [one for one in rows if origin[one.landscape] != origin[name]]
        found["landscapes"][name] = {
            "rows": len(test),
            "rules": correlate(others, test, 0),
            "rules_of_other_files": correlate(foreign, test, 0),
            "forest": correlate(others, test, 50),
        }
        print(name, found["landscapes"][name], flush=True)
        found["mean"] = {
            key: round(float(numpy.mean([one[key] for one in found["landscapes"].values()])), 4)
            for key in ("rules", "rules_of_other_files", "forest")
        }
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(found["mean"])
    if arguments.rules:
        rules = learn_rules(rows)
        found["rules"] = [
            {"text": rule.text, "support": rule.support, "landscapes": rule.landscapes, "held": round(rule.held, 3)}
            for rule in rules
        ]
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        kinds = learn_by_kind(rows, {name: str(place.facts["kind"]) for name, place in places.items()})
        plain = {
            "source": "tests/bench/structure_landscapes.py",
            "rules": [to_plain(rule) for rule in rules],
            "kinds": {kind: [to_plain(rule) for rule in found] for kind, found in kinds.items()},
        }
        arguments.rules.write_text(json.dumps(plain, indent=1) + "\n")
        print(*rules, sep="\n")


if __name__ == "__main__":
    main()
