"""How every picture looks and is saved: colours, names at the ends of lines, stacked bars, files without timestamps.

Nothing here keeps global state or opens a window: figures are drawn by Agg, and the same input gives the same bytes.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from obliq_eval.errors import UserError
from obliq_eval.home import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
FORMATS = ("svg", "png")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colour-blind-safe palette without its yellow, which is too faint for a line on white."""
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, MUTED, PALE = "#222222", "#666666", "#DDDDDD"
LONGEST_NAME = 34
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that widths are the same everywhere
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.hashsalt": "obliq",
    "svg.fonttype": "path",
    "figure.dpi": 150,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw inside the project's style, whatever the user's matplotlibrc says."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Figure:
        import matplotlib as mpl

        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(STYLE)
            return draw(*args, **kwargs)

    return inside


def check_target(path: Path) -> str:
    """Return the format that a file's name asks for.

    Raises:
        UserError: If it is neither SVG nor PNG.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise UserError(f'cannot draw "{path}": the name must end in .svg or .png')
    return form


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, without the time or the version of matplotlib.

    Raises:
        UserError: If the name ends in neither .svg nor .png, or the file cannot be written.
    """
    import matplotlib as mpl

    form = check_target(path)
    nothing = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with whole_file(path) as part, mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure.savefig(part, format=form, metadata=nothing)


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name on one line, cut in the middle where it is long."""
    name = " ".join(name.split())
    if len(name) <= longest:
        return name
    head = (longest - 1) // 2
    return f"{name[:head]}…{name[len(name) - (longest - 1 - head) :]}"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, which finds room for everything that is put beside its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def heading(axes: Axes, title: str, about: str, *, lines: int = 0) -> None:
    """Write the title with a muted line below it, above a legend of so many lines."""
    below = 6 + 15 * lines
    axes.set_title(title, pad=below + 19)
    axes.annotate(about, (0, 1), xycoords="axes fraction", xytext=(0, below), textcoords="offset points",
                  fontsize=9, color=MUTED, va="bottom", annotation_clip=False)  # fmt: skip


def legend(axes: Axes, columns: int) -> None:
    """Explain the marks above the axes, where they hide nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.3,
                    fontsize=8.5, handlelength=1.2, columnspacing=1.4, borderpad=0)  # fmt: skip


def points(xs: Sequence[int], ys: Sequence[float | None]) -> tuple[list[int], list[float]]:
    """Return the points whose value is known."""
    known = [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None]
    return [x for x, _ in known], [y for _, y in known]


def top_of(lines: Sequence[tuple[list[int], list[float]]]) -> float:
    """Return the upper end of an axis from 0 that leaves air above the highest value, at most 1."""
    highest = max((y for _, ys in lines for y in ys), default=1.0)
    return min(1.0, 1.12 * highest) if highest > 0 else 1.0


def label_lines(
    axes: Axes, lines: Mapping[str, tuple[list[int], list[float]]], *, markers: bool = True, ends: bool = False
) -> None:
    """Draw lines with their names at their ends; the scale of the horizontal axis must be set before.

    Args:
        axes: Where to draw.
        lines: `{name: (x, y)}`.
        markers: Mark each point.
        ends: Write the last x behind the name, as a number of documents.
    """
    labels: list[tuple[float, float, str, str]] = []
    for index, (name, (xs, ys)) in enumerate(lines.items()):
        colour, line, marker = look(index)
        axes.plot(xs, ys, color=colour, linestyle=line, marker=marker if markers else "None", clip_on=False)
        if xs:
            labels.append((xs[-1], ys[-1], f"{name} ({xs[-1]:,} documents)" if ends else name, colour))
    low, high = axes.get_xlim()
    highest = max((y for _, ys in lines.values() for y in ys), default=1.0)
    drawn = [ys for _, ys in lines.values() if ys]
    # lines that end in the same place are named in the order in which they came there
    places = spread([ys[-1] + 1e-9 * sum(ys) / len(ys) for ys in drawn], gap=0.06 * highest)
    for (x, y, text, colour), place in zip(labels, places, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.6} if abs(place - y) > 0.02 * highest else None
        aside = x * (high / low) ** 0.02 if axes.get_xscale() == "log" else x + 0.015 * (high - low)
        note = axes.annotate(text, (x, y), xytext=(aside, place), color=legible(colour), va="center", fontsize=9,
                             annotation_clip=False, arrowprops=leader)  # fmt: skip
        note.set_path_effects([_halo()])


def _halo() -> Any:
    """Return a white edge, with which a name stays readable where it crosses a line."""
    from matplotlib.patheffects import withStroke

    return withStroke(linewidth=3, foreground="white")


def look(index: int) -> tuple[str, str, str]:
    """Return colour, line and marker of the system at this place."""
    round_, place = divmod(index, len(COLOURS))
    return COLOURS[place], LINES[round_ % len(LINES)], MARKERS[place]


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return the places moved as little as needed so that no two are nearer than `gap`, in the same order.

    Neighbours that are too close become one block around their mean (pool adjacent violators).
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    blocks: list[list[int]] = []

    def start(block: list[int]) -> float:
        return sum(places[i] for i in block) / len(block) - gap * (len(block) - 1) / 2

    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and start(blocks[-1]) < start(blocks[-2]) + gap * len(blocks[-2]) - 1e-12:
            last = blocks.pop()
            blocks[-1] += last
    moved = [0.0] * len(places)
    for block in blocks:
        for step, index in enumerate(block):
            moved[index] = places[index] if len(block) == 1 else start(block) + gap * step
    return moved


def depth_axis(axes: Axes, depths: Sequence[int]) -> None:
    """Make the horizontal axis one of cut-offs, on a log scale with a tick for each."""
    axes.set_xscale("log")
    axes.set_xticks(depths, [f"{k:,}" for k in depths])
    axes.minorticks_off()
    axes.set_xlim(depths[0], depths[-1] if len(depths) > 1 else 2 * depths[0])


def rows_frame(axes: Axes, names: Sequence[str], *, shorten: bool = True) -> None:
    """Name the rows, the first on top."""
    axes.set_yticks(range(len(names)), [short(name) if shorten else name for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def beside(axes: Axes, row: int, text: str) -> None:
    """Write a remark on a row to the right of the axes."""
    axes.annotate(text, (1, row), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
                  va="center", fontsize=9, annotation_clip=False)  # fmt: skip


def stacks(
    axes: Axes, rows: Sequence[Sequence[float]], names: Sequence[str], colours: Sequence[str], form: str, least: float
) -> None:
    """Draw one stacked bar for each row, with the numbers inside segments that are wide enough for them."""
    for column, (name, colour) in enumerate(zip(names, colours, strict=True)):
        starts = [sum(row[:column]) for row in rows]
        widths = [row[column] for row in rows]
        axes.barh(range(len(rows)), widths, left=starts, color=colour, height=0.62, label=name,
                  edgecolor="white", linewidth=0.8)  # fmt: skip
        for row, (begin, width) in enumerate(zip(starts, widths, strict=True)):
            if width >= least:
                axes.text(begin + width / 2, row, form.format(width), ha="center", va="center", fontsize=9,
                          color=_on(colour))  # fmt: skip


def legible(colour: str) -> str:
    """Return a colour darkened until text in it has a contrast of 4.5 on white (WCAG 2, level AA)."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    while 1.05 / (_luminance(colour) + 0.05) < 4.5:
        red, green, blue = (int(0.95 * channel) for channel in (red, green, blue))
        colour = f"#{red:02X}{green:02X}{blue:02X}"
    return colour


def _on(colour: str) -> str:
    """Return black or white, whichever has the higher contrast on a colour."""
    luminance = _luminance(colour)
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def _luminance(colour: str) -> float:
    """Return the relative luminance of `#RRGGBB` as WCAG 2 defines it, in 0..1."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
