"""Reads SMILES, the line notation of molecules (Weininger, 1988), as far as graphs need it.

Atoms, bonds, branches, rings, charges, hydrogens in brackets and separate parts are read. The arrangement in space
(`@`, `/`, `\\`) and isotopes are passed over.
"""

from __future__ import annotations

import re

from workbench.errors import UserError
from workbench.structure.graph import Graph

TOKEN = re.compile(
    r"\[(?P<bracket>[^\]]+)\]|(?P<atom>Br|Cl|[BCNOPSFI]|[bcnops])|(?P<bond>[-=#$:/\\])"
    r"|(?P<ring>%\d\d|\d)|(?P<branch>[()])|(?P<part>\.)"
)
BRACKET = re.compile(r"\d*(?P<atom>[A-Z][a-z]?|[a-z]{1,2}|\*)@*(?:H(?P<hydrogens>\d*))?(?P<charge>[+-]+\d*)?")
BONDS = {"-": "single", "=": "double", "#": "triple", "$": "quadruple", ":": "aromatic", "/": "single", "\\": "single"}


def parse_smiles(text: str) -> Graph:
    """The molecule of a SMILES. Raises `UserError` that names the place of what cannot be read."""
    reader = _Reader(text.strip())
    return reader.read()


class _Reader:
    """Reads a SMILES from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._atoms: list[tuple[str, float, float]] = []  # name, charge, hydrogens
        self._bonds: list[tuple[int, int, str]] = []
        self._last = -1
        self._bond = ""
        self._open: list[int] = []
        self._rings: dict[str, tuple[int, str]] = {}

    def read(self) -> Graph:
        place = 0
        while place < len(self._text):
            found = TOKEN.match(self._text, place)
            if found is None:
                raise self._refuse(place)
            self._take(found, place)
            place = found.end()
        if self._open or self._rings or not self._atoms:
            raise UserError(f"SMILES {self._text[:60]!r} ends within a branch or a ring, or has no atom")
        return Graph.of(
            [(one, other) for one, other, _ in self._bonds],
            size=len(self._atoms),
            node_columns={
                "atom": [name for name, _, _ in self._atoms],
                "charge": [charge for _, charge, _ in self._atoms],
                "hydrogens": [hydrogens for _, _, hydrogens in self._atoms],
            },
            edge_columns={"bond": [kind for _, _, kind in self._bonds]},
        )

    def _take(self, found: re.Match[str], place: int) -> None:
        """One token."""
        if found["bracket"]:
            self._add_bracket(found["bracket"], place)
        elif found["atom"]:
            self._add(found["atom"], 0.0, 0.0)
        elif found["bond"]:
            self._bond = BONDS[found["bond"]]
        elif found["ring"]:
            self._close_ring(found["ring"], place)
        elif found["part"]:
            self._last = -1
        elif found["branch"] == "(":
            self._open.append(self._last)
        elif self._open:
            self._last = self._open.pop()
        else:
            raise self._refuse(place)

    def _add_bracket(self, text: str, place: int) -> None:
        found = BRACKET.match(text)
        if found is None:
            raise self._refuse(place)
        hydrogens = found["hydrogens"]
        sign = found["charge"] or ""
        count = int(sign.lstrip("+-")) if sign.lstrip("+-") else len(sign)
        charge = -count if sign.startswith("-") else count
        self._add(found["atom"], float(charge), 0.0 if hydrogens is None else float(hydrogens or 1))

    def _add(self, name: str, charge: float, hydrogens: float) -> None:
        self._atoms.append((name, charge, hydrogens))
        node = len(self._atoms) - 1
        if self._last >= 0:
            self._join(self._last, node, self._bond)
        self._last, self._bond = node, ""

    def _close_ring(self, number: str, place: int) -> None:
        if self._last < 0:
            raise self._refuse(place)
        if number in self._rings:
            other, kind = self._rings.pop(number)
            self._join(other, self._last, self._bond or kind)
        else:
            self._rings[number] = (self._last, self._bond)
        self._bond = ""

    def _join(self, one: int, other: int, kind: str) -> None:
        aromatic = self._atoms[one][0].islower() and self._atoms[other][0].islower()
        self._bonds.append((one, other, kind or ("aromatic" if aromatic else "single")))

    def _refuse(self, place: int) -> UserError:
        return UserError(f"SMILES {self._text[:60]!r} cannot be read at character {place + 1}")
