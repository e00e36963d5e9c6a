"""Figures as pictures: SVG, written by hand, the same bytes for the same figures.

Pictures stand on a light ground of their own, so that they can be read on a page of either theme. Every value is also
written as a number: nobody has to measure a bar.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from xml.sax.saxutils import escape

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a7a7a", "#b8a300")
"""Okabe and Ito's, which are told apart by people who see colours differently."""
_WIDTH = 760
_LEFT = 210
_RIGHT = 90
_INK, _FAINT, _GROUND = "#1f2933", "#d9dee4", "#ffffff"
_FONT = "font-family='system-ui, -apple-system, Segoe UI, sans-serif'"


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    text: str
    """What stands at its end, unit included."""
    colour: int = 0
    low: float | None = None
    high: float | None = None
    """Of all runs, if there were several."""


@dataclass(frozen=True)
class Group:
    label: str
    bars: Sequence[Bar] = field(default_factory=tuple)


def bars(title: str, groups: Sequence[Group], *, note: str = "", log: bool = False) -> str:
    """Horizontal bars, in groups. `log` for values that differ by orders of magnitude; the note should say so."""
    values = [value for group in groups for bar in group.bars for value in (bar.value, bar.high) if value is not None]
    most = max(values, default=1.0) or 1.0
    least = min((value for value in values if value > 0), default=1.0)
    floor = math.floor(math.log10(least)) if log else 0
    span = max(1e-12, math.log10(most) - floor) if log else most
    room = _WIDTH - _LEFT - _RIGHT

    def x(value: float) -> float:
        share = (math.log10(value) - floor) / span if log and value > 0 else value / span if not log else 0.0
        return _LEFT + room * max(0.0, min(1.0, share))

    out, y = _head(title, note)
    for group in groups:
        if group.label:
            out.append(_text(16, y + 12, group.label, weight=600))
            y += 22
        for bar in group.bars:
            end = x(bar.value)
            out.append(_text(_LEFT - 8, y + 13, bar.label, anchor="end"))
            colour = COLOURS[bar.colour % len(COLOURS)]
            out.append(
                f"<rect x='{_LEFT}' y='{y + 2}' width='{max(1.0, end - _LEFT):.1f}' height='14' fill='{colour}'/>"
            )
            if bar.low is not None and bar.high is not None and bar.high > bar.low:
                low, high = x(bar.low), x(bar.high)
                out.append(
                    f"<path d='M{low:.1f} {y + 9}H{high:.1f}M{low:.1f} {y + 5}v8M{high:.1f} {y + 5}v8' "
                    f"stroke='{_INK}'/>"
                )
                end = max(end, high)
            out.append(_text(end + 6, y + 13, bar.text))
            y += 20
        y += 8
    return _whole(out, y + 4, title)


def strips(
    title: str,
    rows: Mapping[str, Sequence[float]],
    *,
    unit: str,
    note: str = "",
    colours: Mapping[str, int] | None = None,
) -> str:
    """Every sample as a dot, on one axis; the median as a line, and as a number."""
    most = max((value for samples in rows.values() for value in samples), default=1.0) or 1.0
    step = _step(most)
    top = math.ceil(most / step) * step
    room = _WIDTH - _LEFT - _RIGHT

    def x(value: float) -> float:
        return _LEFT + room * value / top

    out, y = _head(title, note)
    begin = y
    height = 28 * len(rows)
    for tick in range(round(top / step) + 1):
        at = x(tick * step)
        out.append(f"<path d='M{at:.1f} {begin}V{begin + height}' stroke='{_FAINT}'/>")
        out.append(
            _text(
                at, begin + height + 16, f"{tick * step:g}{f' {unit}' if tick == 0 else ''}", anchor="middle", size=11
            )
        )
    for number, (label, samples) in enumerate(rows.items()):
        colour = COLOURS[(colours or {}).get(label, number) % len(COLOURS)]
        out.append(_text(_LEFT - 8, y + 18, label, anchor="end"))
        for place, value in enumerate(samples):
            # Spread by turns, so that equal samples can be counted.
            out.append(
                f"<circle cx='{x(value):.1f}' cy='{y + 10 + place % 3 * 4}' r='3' fill='{colour}' fill-opacity='0.55'/>"
            )
        if samples:
            middle = median(samples)
            out.append(f"<path d='M{x(middle):.1f} {y + 4}v20' stroke='{_INK}' stroke-width='2'/>")
            out.append(_text(_WIDTH - _RIGHT + 8, y + 18, f"{middle:.3g} {unit}"))
        y += 28
    return _whole(out, y + 28, title)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str,
    y_label: str,
    note: str = "",
    log_x: bool = False,
    from_zero: bool = True,
) -> str:
    """Points, joined. Few of them, each with its value."""
    points = [point for each in series.values() for point in each]
    xs = sorted({point[0] for point in points}) or [0.0, 1.0]
    step = _step(max((point[1] for point in points), default=1.0) or 1.0)
    top = max(1, math.ceil(max((point[1] for point in points), default=1.0) / step)) * step
    bottom = 0.0 if from_zero else math.floor(min(point[1] for point in points) / step) * step
    out, begin = _head(title, note)
    height, left, right = 220, 70, _WIDTH - 30

    def scaled(value: float) -> float:
        return math.log10(value) if log_x else value

    low, high = scaled(xs[0]), scaled(xs[-1])

    def x(value: float) -> float:
        return left + (right - left) * ((scaled(value) - low) / (high - low) if high > low else 0.5)

    def y(value: float) -> float:
        return begin + height - height * (value - bottom) / (top - bottom)

    for tick in range(round((top - bottom) / step) + 1):
        at = bottom + tick * step
        out.append(f"<path d='M{left} {y(at):.1f}H{right}' stroke='{_FAINT}'/>")
        out.append(_text(left - 8, y(at) + 4, f"{at:g}", anchor="end", size=11))
    for at in xs:
        out.append(_text(x(at), begin + height + 16, f"{at:,g}", anchor="middle", size=11))
    out.append(_text((left + right) / 2, begin + height + 34, x_label, anchor="middle", size=11))
    out.append(_text(16, begin - 6, y_label, size=11))
    legend = left
    for number, (name, each) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in each)
        out.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        out += [f"<circle cx='{x(a):.1f}' cy='{y(b):.1f}' r='3.5' fill='{colour}'/>" for a, b in each]
        out.append(f"<rect x='{legend}' y='{begin + height + 46}' width='12' height='12' fill='{colour}'/>")
        out.append(_text(legend + 18, begin + height + 56, name, size=12))
        legend += 34 + 7 * len(name)
    return _whole(out, begin + height + 70, title)


def _head(title: str, note: str) -> tuple[list[str], int]:
    out = [_text(16, 28, title, size=16, weight=600)]
    y = 40
    for line in _folded(note):
        out.append(_text(16, y + 10, line, size=12, colour="#52606d"))
        y += 16
    return out, y + 16


def _folded(note: str, width: int = 108) -> list[str]:
    lines: list[str] = []
    for word in note.split():
        if lines and len(lines[-1]) + len(word) < width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _whole(out: Sequence[str], height: int, title: str) -> str:
    body = "\n".join(out)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' width='{_WIDTH}' height='{height}' "
        f"role='img' aria-label='{escape(title, {chr(39): '&apos;'})}'>\n"
        f"<rect width='{_WIDTH}' height='{height}' rx='6' fill='{_GROUND}'/>\n{body}\n</svg>\n"
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, weight: int = 400, colour: str = _INK
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' "
        f"fill='{colour}'>{escape(text)}</text>"
    )


def _step(most: float) -> float:
    """A round number of which four to eight make up `most`."""
    rough = most / 5
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough)
