"""Fuzz what reads a bucket, guided by coverage (atheris): `make fuzz SECONDS=60`.

One input is one byte that names a decoder of `lab/decoders.py`, and the body for it. What is refused by name is fine;
anything else that is raised ends the run, with the input in a file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

try:
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    sys.exit("atheris is not installed: `pip install 'tenure[fuzz]'`; it has wheels for Linux on x86-64")

with atheris.instrument_imports(include=["tenure"]):
    from lab.decoders import DECODERS, bodies, refused


def try_one(data: bytes) -> None:
    if data:
        refused(DECODERS[data[0] % len(DECODERS)], data[1:])


def main(seconds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, decoder in enumerate(DECODERS):
            for place, body in enumerate([decoder.sample, *bodies(decoder, 2, 5)]):
                (Path(folder) / f"{number}-{place}").write_bytes(bytes([number]) + body)
        options = [
            f"-max_total_time={seconds}",
            "-max_len=65536",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *options, folder], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
