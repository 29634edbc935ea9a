"""Converts records to JSON and back, with a schema version; hashes their content."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from cattrs.preconf.json import JsonConverter

SCHEMA = 1
Json = dict[str, Any]  # a JSON object
T = TypeVar("T")


@functools.cache
def _converter() -> JsonConverter:
    from cattrs.preconf.json import make_converter

    made = make_converter(forbid_extra_keys=False)
    made.register_structure_hook(str, lambda value, _: replace_surrogates(str(value)))
    return made


def replace_surrogates(text: str) -> str:
    """The text with "?" for lone surrogates, which a JSON escape can name and no terminal and no file takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def prepare_conversion(*kinds: type) -> None:
    """Make the functions that convert these kinds of records and the records in them, which takes tens of milliseconds
    at the first use.
    """
    waiting, seen = list(kinds), set[Any]()
    while waiting:
        kind = waiting.pop()
        if kind not in seen and kind is not type(None) and (isinstance(kind, type) or get_args(kind)):
            seen.add(kind)
            waiting += get_type_hints(kind).values() if dataclasses.is_dataclass(kind) else get_args(kind)
    for _ in range(2):  # making some of them drops others
        for kind in seen:
            _converter().get_unstructure_hook(kind)
            _converter().get_structure_hook(kind)


def to_plain(record: object) -> Any:
    """Returns the record as dicts, lists and scalars."""
    return _converter().unstructure(record)


def from_plain(plain: object, kind: type[T]) -> T:
    """Builds a record of `kind` from the result of `to_plain`. Unknown keys are ignored, missing keys take their
    defaults. Raises `WorkbenchError` if the data does not fit.
    """
    try:
        return _converter().structure(plain, kind)
    except Exception as error:  # cattrs raises exception groups of many kinds, and RecursionError
        raise WorkbenchError(f"stored {kind.__name__} cannot be read: {error}") from error


def dumps(record: object) -> str:
    """Writes canonical JSON: sorted keys, no spaces, `"schema"` and `"record"` at the top."""
    return json.dumps({"schema": SCHEMA, "record": to_plain(record)}, sort_keys=True, separators=(",", ":"))


def loads(text: str, kind: type[T]) -> T:
    """Reads a record of `kind` from the text of `dumps`. Raises `WorkbenchError` if it is damaged or too new."""
    try:
        envelope = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise WorkbenchError(f"stored {kind.__name__} cannot be read: {error}") from None
    if not isinstance(envelope, dict) or "record" not in envelope or not isinstance(envelope.get("schema", 0), int):
        raise WorkbenchError(f"stored {kind.__name__} cannot be read: it is no record")
    if envelope.get("schema", 0) > SCHEMA:
        raise WorkbenchError(
            f"written by a newer workbench (schema {envelope['schema']}, this one knows {SCHEMA}): upgrade it"
        )
    return from_plain(envelope["record"], kind)


def content_hash(record: object) -> str:
    """Hex SHA-256 of the canonical JSON of a record, or of the text itself when given a string.

    Fields that were added later (metadata `hashed="when set"`), also those of records inside, are left out while they
    have their defaults.
    """
    text = record if isinstance(record, str) else json.dumps(_hash_input(record), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_input(record: object) -> object:
    plain = to_plain(record)
    _drop_later(record, plain)
    return plain


def _drop_later(value: object, plain: Any) -> None:
    """Remove the defaults of later fields from the plain form of a record and of the records in it."""
    if isinstance(value, (tuple, list)):
        for item, part in zip(value, plain, strict=True):
            _drop_later(item, part)
    elif dataclasses.is_dataclass(value) and isinstance(plain, dict):
        for one in dataclasses.fields(value):
            inner = getattr(value, one.name)
            if one.metadata.get("hashed") == "when set" and inner == one.default:
                del plain[one.name]
            elif isinstance(inner, (tuple, list)) or dataclasses.is_dataclass(inner):
                _drop_later(inner, plain[one.name])
