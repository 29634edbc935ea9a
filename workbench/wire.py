"""Records to JSON and back, with a schema version, and content hashes of records."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import Any, TypeVar

from workbench.errors import WorkbenchError

SCHEMA = 1
T = TypeVar("T")


@functools.cache
def _converter() -> Any:
    from cattrs.preconf.json import make_converter

    return make_converter(forbid_extra_keys=False)


def to_plain(record: Any) -> Any:
    """The record as dicts, lists and scalars."""
    return _converter().unstructure(record)


def from_plain(plain: Any, kind: type[T]) -> T:
    """A record of `kind` from what `to_plain` gave; unknown keys are ignored, missing ones take their defaults."""
    try:
        return _converter().structure(plain, kind)  # type: ignore[no-any-return]
    except Exception as error:  # cattrs raises exception groups of many kinds
        raise WorkbenchError(f"stored {kind.__name__} cannot be read: {error}") from error


def dumps(record: Any) -> str:
    """Canonical JSON text: sorted keys, no spaces, schema version first in `"schema"`."""
    return json.dumps({"schema": SCHEMA, "record": to_plain(record)}, sort_keys=True, separators=(",", ":"))


def loads(text: str, kind: type[T]) -> T:
    """A record of `kind` from the text of `dumps`; raises `WorkbenchError` when the schema is newer than this program."""
    envelope = json.loads(text)
    if envelope.get("schema", 0) > SCHEMA:
        raise WorkbenchError(f"written by a newer workbench (schema {envelope['schema']}, this one knows {SCHEMA}): upgrade it")
    return from_plain(envelope["record"], kind)


def content_hash(record: Any) -> str:
    """Hex SHA-256 of the canonical JSON of a record (without those later fields of it that have their defaults), or of the text itself when given a string."""
    text = record if isinstance(record, str) else json.dumps(_hashed(record), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _hashed(record: Any) -> Any:
    plain = to_plain(record)
    if dataclasses.is_dataclass(record):
        for one in dataclasses.fields(record):
            if one.metadata.get("hashed") == "when set" and getattr(record, one.name) == one.default:
                del plain[one.name]
    return plain
