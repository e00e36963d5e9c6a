"""The colours of both themes, from the style sheet: text can be read, and what is no text can be told apart."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tenure import dashboard

SHEET = files(dashboard).joinpath("static", "dashboard.css").read_text()
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", SHEET)
}
HUES = [f"hue-{number}" for number in range(8)]
TEXT = 4.5
SHAPES = 3.0

PAIRS = [
    *((ink, ground, TEXT) for ink in ("ink", "muted") for ground in ("page", "surface", "sunken")),
    *((ink, "surface", TEXT) for ink in ("accent", "ok", "warn", "bad")),
    *((tone, f"{tone}-soft", TEXT) for tone in ("accent", "ok", "warn", "bad")),
    ("bad", "page", TEXT),
    ("ink", "bad-soft", TEXT),
    ("on-accent", "accent", TEXT),
    ("on-bad", "bad", TEXT),
    ("surface", "ink", TEXT),
    ("edge", "surface", SHAPES),
    *(("on-hue", hue, TEXT) for hue in HUES),
    *((hue, "surface", SHAPES) for hue in HUES),
]


def luminance(colour: str) -> float:
    """Relative, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast(theme: int) -> None:
    low = {
        (ink, ground): round(ratio, 2)
        for ink, ground, least in PAIRS
        if (ratio := contrast(COLOURS[ink][theme], COLOURS[ground][theme])) < least
    }
    assert low == {}


def test_the_measure_itself() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # known to be just too low


def test_no_colour_escapes() -> None:
    """Every colour that is used is one of those, but for shadows."""
    rules = SHEET.partition("--sans")[2]
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b", rules) == []
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", rules)) - {"sans", "mono", "radius"}
    assert used <= COLOURS.keys()
