"""Colours that are used together differ for everybody, by the simulation of Machado et al. (2009)."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest

from dmlcore.view import plot

# "A physiologically-based model for simulation of color vision deficiency", severity 1.0, on linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# sRGB to CIE XYZ, white D65.
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
# In CIE L*a*b* a distance of 2.3 is just noticeable; lines and bars side by side need some times that.
LEAST = 10.0


def lab(color, sight):
    """What somebody of this sight sees, in CIE L*a*b*."""
    rgb = np.array(mpl.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = XYZ @ np.clip(SIGHTS[sight] @ linear, 0, 1) / XYZ.sum(axis=1)
    f = [np.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colors, sight):
    """The least distance of two colours, and which these are."""
    seen = {color: lab(color, sight) for color in set(colors)}
    return min(
        (float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in itertools.combinations(sorted(seen), 2)
    )


def test_the_simulation_knows_what_is_known():
    """White stays white; a brown and an olive that differ widely are nearly one to a deuteranope."""
    for sight in SIGHTS:
        np.testing.assert_allclose(lab("#FFFFFF", sight), [100, 0, 0], atol=0.1)
    assert nearest(["#A05000", "#507000"], "normal")[0] > 50
    assert nearest(["#A05000", "#507000"], "deuteranopia")[0] < LEAST


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("colors", [plot.METHOD_COLORS, plot.PHASE_COLORS], ids=["methods", "phases"])
def test_any_two_colours_of_one_kind_differ(colors, sight):
    distance, *pair = nearest(colors.values(), sight)
    assert distance >= LEAST, pair


@pytest.mark.parametrize("sight", SIGHTS)
def test_lines_and_bars_stand_out_from_the_page(sight):
    """All but waiting and absence, which are meant to recede, and where nothing is to be read."""
    loud = [color for kind, color in plot.PHASE_COLORS.items() if kind not in ("wait", "away")]
    for color in {*plot.METHOD_COLORS.values(), *loud}:
        assert nearest([color, "#FFFFFF"], sight)[0] >= 3 * LEAST, color
