"""SVG plots without a library: readable on light and dark pages, with diffs only where figures change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#2f6f9f", "#d08a2e", "#5a9e6f", "#a05195", "#7f7f7f", "#c44e52")
_FONT = "font-family='sans-serif' font-size='12' fill='#777'"
_LABEL, _WIDTH, _BAR, _GAP = 210, 760, 13, 12


def bars(title: str, rows: Mapping[str, Mapping[str, float]], *, top: float, unit: str = "", low: float = 0.0) -> str:
    """A row for each contestant, in it a bar for each series; the axis runs from `low` to `top`."""
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    parts, y = [_text(8, 20, title, weight="bold")], 34
    for at, name in enumerate(series):
        x = _LABEL + at * (_WIDTH - _LABEL) // max(1, len(series))
        parts += [_box(x, y, 10, 10, COLOURS[at % len(COLOURS)]), _text(x + 15, y + 10, name)]
    y += 28
    for label, row in rows.items():
        middle = y + (len(row) * _BAR) / 2 + 4
        parts.append(_text(_LABEL - 8, middle, label, anchor="end"))
        for name, value in row.items():
            width = max(0.0, min(1.0, (value - low) / (top - low))) * (_WIDTH - _LABEL - 70)
            parts.append(_box(_LABEL, y, width, _BAR - 2, COLOURS[series.index(name) % len(COLOURS)]))
            parts.append(_text(_LABEL + width + 5, y + _BAR - 3, f"{_short(value)}{unit}"))
            y += _BAR
        y += _GAP
    return _svg(y, parts, title)


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-weight='{weight}' {_FONT}>{escape(text)}</text>"


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{colour}'/>"


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' width='{_WIDTH}' role='img'>"
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>", ""])
