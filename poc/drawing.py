"""From matplotlib to SVG that stands in an HTML page and takes its colours and fonts from it.

matplotlib draws with a few marker colours; they are replaced by the page's own, so that one
drawing serves light, dark and paper. The same drawing always gives the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from cedana_poc.errors import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

WIDTH = 720
BAR_STEP = 26

INK, MUTED, RULE, PAGE = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
ACCENT, QUIET, BAND = "#0a0b05", "#0a0b06", "#0a0b07"
PAGE_COLOURS = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    PAGE: "var(--page)",
    ACCENT: "var(--accent)",
    QUIET: "var(--quiet)",
    BAND: "var(--band)",
}
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cedana-poc",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "text.color": INK,
    "hatch.color": MUTED,
    "hatch.linewidth": 0.8,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 8,
    "figure.facecolor": "none",
    "legend.frameon": False,
}


def svg(name: str, title: str, text: str, height: int, draw: Callable[[Drawing], None]) -> str:
    """An image `WIDTH` by `height` that `draw` fills, named by `title` and `text`.

    Every id in it begins with `name`, so that several fit on one page.
    """
    from matplotlib import style
    from matplotlib.figure import Figure as Drawing

    out = io.StringIO()
    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        # The fonts shown are the reader's; a glyph that is missing here need not be there.
        warnings.filterwarnings("ignore", message="Glyph")
        drawing = Drawing(figsize=(WIDTH / 72, height / 72), dpi=72)
        draw(drawing)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.savefig(out, format="svg", metadata=nothing)
    return _inline(out.getvalue(), name, title, text)


def label(text: str, most: int = 24) -> str:
    """A name short and plain enough for an axis; the data table has it whole."""
    plain = visible(text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def panel(drawing: Drawing, top: float, bottom: float, left: float, width: float) -> Axes:
    """Axes at a place given in pixels from the top left corner."""
    height = drawing.get_figheight() * 72
    return drawing.add_axes(
        (left / WIDTH, 1 - bottom / height, width / WIDTH, (bottom - top) / height)
    )


def heading(axes: Axes, text: str, at: float = 0, ha: str = "left") -> None:
    """A line over the axes that says what they measure."""
    axes.annotate(
        text,
        (at, 1),
        (0, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        color=MUTED,
        ha=ha,
        annotation_clip=False,
    )


def beside(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Text left or right of the axes: `x` as a fraction of their width, `y` as drawn."""
    axes.text(x, y, text, va="center", transform=axes.get_yaxis_transform(), **look)


def bars(axes: Axes, values: Sequence[float], longest: float, names: Sequence[str] = ()) -> None:
    """Lying bars, the first on top, on an axis that ends at `longest`."""
    axes.barh(range(len(values)), values, 0.62, color=ACCENT, linewidth=0, clip_on=False)
    axes.set_xlim(0, longest or 1)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks(range(len(names)), [label(name) for name in names], color=INK)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(True)


def scale(axes: Axes, values: Sequence[float]) -> None:
    """A few round numbers on the y axis, with faint lines, from zero."""
    axes.set_ylim(0, max(values, default=0) * 1.05 or 1)
    whole = all(isinstance(value, int) for value in values)
    axes.locator_params(axis="y", nbins=4, integer=whole)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="y")


def _inline(drawn: str, name: str, title: str, text: str) -> str:
    root = ElementTree.fromstring(drawn)
    targets = set(re.findall(r"""(?:url\(|href=")#([^")]+)""", drawn))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (element.text or "").strip(), ""
        element.attrib = {
            key.rpartition("}")[2]: _own(key, value, name)
            for key, value in element.attrib.items()
            if key != "id" or value in targets
        }
    for parent in root.iter("defs"):
        # A rule for every element, which would reach out of the image into the page.
        for leaking in parent.findall("style"):
            parent.remove(leaking)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
    }
    for tag, words in (("desc", text), ("title", title)):
        element = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        element.text = words
        root.insert(0, element)
    return ElementTree.tostring(root, encoding="unicode")


def _own(key: str, value: str, name: str) -> str:
    """An attribute as the page needs it: ids of this image's own, the page's colours and font."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href"):
        return f"#{name}-{value[1:]}"
    if key == "d":
        return " ".join(value.split())
    value = re.sub(r"font-family: [^;]*;?\s*", "", value)
    value = re.sub(r"#0a0b\d\d", lambda found: PAGE_COLOURS[found[0]], value)
    return value.replace("url(#", f"url(#{name}-")
