# SPDX-License-Identifier: BSD-3-Clause
"""The plane of conditional risk and likelihood ratio as an SVG file: the picture of the demo.

Convention: r grows to the right and g upwards, both on logarithmic axes; what lies below the curve r + beta g = lambda is accepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.decision import Decisions
from poscod.rule import Rule

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 400, 60, 20
_DECADES_R, _DECADES_G = 6, 4
_COLOURS = {"unknown": "#d1495b", "known, answered right": "#2e86ab", "known, answered wrong": "#222222"}


def draw_plane(known: Decisions, wrong: NDArray[np.bool_], unknown: Decisions, rule: Rule) -> str:
    """Return the picture."""
    threshold, beta = rule.threshold, rule.slope
    groups = zip(_COLOURS.items(), (unknown, known[~wrong], known[wrong]), strict=True)
    parts = []
    for i, ((text, colour), rows) in enumerate(groups):
        for x, y in zip(_x(rows.risk), _y(rows.log_ratio), strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.55"/>')
        parts.append(f'<circle cx="{_LEFT + 12}" cy="{_TOP + 12 + 18 * i}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 24}" y="{_TOP + 17 + 18 * i}">{text}</text>')
    r = np.logspace(-_DECADES_R, np.log10(min(threshold, 1.0)) - 1e-9, 200)
    edge = np.log(np.maximum(threshold - r, 1e-300) / beta)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(_x(r), _y(edge), strict=True))
    for k in range(-_DECADES_R, 1, 2):
        parts.append(f'<text x="{_x(10.0**k):.0f}" y="{_HEIGHT - 28}" text-anchor="middle">{10.0**k:g}</text>')
    for k in range(-_DECADES_G, _DECADES_G + 1, 2):
        parts.append(f'<text x="{_LEFT - 8}" y="{_y(k * np.log(10)) + 4:.0f}" text-anchor="end">1e{k}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13" '
        'role="img" aria-label="Conditional risk r against likelihood ratio g: the accepted inputs lie below the line '
        'r + beta g = lambda"><rect width="100%" height="100%" fill="white"/>'
        f'{"".join(parts)}<polyline points="{path}" fill="none" stroke="#111" stroke-width="2" stroke-dasharray="6 4"/>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">conditional risk r(x)</text>'
        f'<text transform="translate(14 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle">likelihood ratio g(x)</text>'
        f'<text x="{_WIDTH - 24}" y="{_TOP + 14}" text-anchor="end">accept below the line r + beta g = lambda</text></svg>\n'
    )


def _x(risk: Any) -> Any:
    share = (np.log10(np.maximum(risk, 10.0**-_DECADES_R)) + _DECADES_R) / _DECADES_R
    return _LEFT + np.clip(share, 0.0, 1.0) * (_WIDTH - _LEFT - 20)


def _y(log_ratio: Any) -> Any:
    share = (_DECADES_G - log_ratio / np.log(10)) / (2 * _DECADES_G)
    return _TOP + np.clip(share, 0.0, 1.0) * (_HEIGHT - _TOP - 50)
