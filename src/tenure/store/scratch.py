"""Objects that are written only to try a store out, or to see its clock, and may be deleted by whoever finds them."""

from __future__ import annotations

import msgspec

PROBE_FOLDER = "tenure-probe/"
RACE_FOLDER = "tenure-race/"
DOCTOR_FOLDER = "tenure-doctor/"
TIME_FOLDER = "tenure-time/"
"""One object for each measurement of the store's clock, removed right after it."""
SCRATCH_FOLDERS = (PROBE_FOLDER, RACE_FOLDER, DOCTOR_FOLDER, TIME_FOLDER)


class ScratchRecord(msgspec.Struct, frozen=True, rename="camel"):
    write_id: str
    purpose: str = "tenure tries this store out; safe to delete"
    schema_version: int = 1


def scratch_body(write_id: str) -> bytes:
    return msgspec.json.encode(ScratchRecord(write_id=write_id))


def scratch_ids(body: bytes) -> tuple[str, ...]:
    """The id of the write that made `body`, for `settle`."""
    try:
        return (msgspec.json.decode(body, type=ScratchRecord).write_id,)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
