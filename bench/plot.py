"""Groups of horizontal bars as SVG text, without a library: equal input gives equal bytes."""
from html import escape

from typing import NamedTuple


class Colours(NamedTuple):
    page: str
    words: str
    bars: tuple


LIGHT = Colours("#ffffff", "#1f2328", ("#1b6ca8", "#b8b8b8", "#8f8f8f", "#6b6b6b", "#e0a458", "#c9742c", "#5a9367"))
DARK = Colours("#0d1117", "#e6edf3", ("#58a6e8", "#5f6670", "#7d8590", "#a0a8b2", "#d9a050", "#c46f2c", "#6fae7d"))
WIDTH, LABEL, BAR, GAP, TOP = 900, 260, 11, 14, 62
LONGEST = WIDTH - LABEL - 70


def text(x, y, words, size=11, anchor="start", weight="normal"):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'


def bars(title, series, groups, colours=LIGHT):
    """`groups`: [(label, [(name of a series, value, words)])]. The longest bar of a group has the whole width."""
    lines, y = [text(12, 20, title, 14, weight="bold")], TOP
    for i, name in enumerate(series):
        x, row = 12 + (i % 4) * 220, 32 + 14 * (i // 4)
        lines += [f'<rect x="{x}" y="{row}" width="10" height="10" fill="{colours.bars[i]}"/>', text(x + 14, row + 9, name)]
    for label, values in groups:
        most = max(value for _, value, _ in values)
        lines.append(text(LABEL - 8, y + BAR * len(values) / 2 + 4, label, anchor="end"))
        for name, value, words in values:
            length = LONGEST * value / most
            lines += [f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR - 1}" fill="{colours.bars[series.index(name)]}"/>',
                      text(f"{LABEL + length + 4:.1f}", y + 9, words, 10)]
            y += BAR
        y += GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" fill="{colours.words}">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="{colours.page}"/>', *lines, "</svg>", ""])
