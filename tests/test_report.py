"""The HTML page: complete in itself, safe, the same every time, and readable by anyone."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sample_analysis
from browser import Browser, chromium
from jinja2 import UndefinedError

from cedana_poc import report

DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "sample": sample_analysis.sample,
    "hostile": sample_analysis.hostile,
    "unknown": sample_analysis.unknown,
    "no_runs": sample_analysis.no_runs,
}
VOID = {"meta", "link", "img", "br", "hr", "input"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def all(self, *tags: str) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                if not tags or child.tag in tags:
                    yield child
                yield from child.all(*tags)

    @property
    def text(self) -> str:
        parts = (child if isinstance(child, str) else child.text for child in self.children)
        return "".join(parts)


class Tree(HTMLParser):
    """A page as elements; one that does not nest well is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]
        self.feed(page)
        self.close()
        assert self._open == [self.root], f"not closed: {self._open[-1].tag}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in {tag}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: report.render(document()) for name, document in DOCUMENTS.items()}


@pytest.fixture(scope="module", params=list(DOCUMENTS))
def page(request: pytest.FixtureRequest, pages: dict[str, str]) -> str:
    return pages[request.param]


@pytest.fixture(scope="module")
def tree(page: str) -> Element:
    return Tree(page).root


def section(root: Element, name: str) -> Element:
    return next(each for each in root.all("section") if each.attributes["aria-labelledby"] == name)


def table(root: Element, caption: str) -> list[list[str]]:
    """The rows of the table with this caption, the head first."""
    found = next(each for each in root.all("table") if next(each.all("caption")).text == caption)
    return [[cell.text for cell in row.all("th", "td")] for row in found.all("tr")]


def plain(text: str) -> str:
    return " ".join(text.split())


# -- structure --------------------------------------------------------------------------------


def test_the_page_says_its_language_its_title_and_where_its_content_begins(tree: Element) -> None:
    html = next(tree.all("html"))
    assert html.attributes["lang"] == "en"
    assert next(html.all("title")).text.startswith("Runs that ended at their time limit")
    (main,) = html.all("main")
    skip = next(html.all("a"))
    assert skip.attributes == {"class": "skip", "href": f"#{main.attributes['id']}"}


def test_headings_are_in_order_and_only_one_is_the_first(tree: Element) -> None:
    levels = [int(each.tag[1]) for each in tree.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    steps = [after - before for before, after in pairwise(levels)]
    assert max(steps) == 1


def test_every_table_has_a_caption_and_cells_that_know_their_headings(tree: Element) -> None:
    captions = [next(each.all("caption")).text for each in tree.all("table")]
    assert len(captions) == len(set(captions)), "two tables with one name"
    for each in tree.all("table"):
        head, *body = each.all("tr")
        columns = list(head.all("th", "td"))
        assert all(cell.attributes["scope"] == "col" and plain(cell.text) for cell in columns)
        for row in body:
            first, *others = row.all("th", "td")
            assert first.tag == "th"
            assert first.attributes["scope"] == "row"
            assert [cell.tag for cell in others] == ["td"] * (len(columns) - 1)
            for cell, column in zip(others, columns[1:], strict=True):
                kind = column.attributes["class"]
                assert cell.attributes["class"].split()[0] == kind
                assert plain(cell.text)


def test_every_reference_has_a_target_and_every_id_is_given_once(tree: Element) -> None:
    ids = [each.attributes["id"] for each in tree.all() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    for each in tree.all():
        wanted = each.attributes.get("aria-labelledby", "").split()
        if "href" in each.attributes:
            assert each.attributes["href"].startswith("#")
            wanted.append(each.attributes["href"][1:])
        assert set(wanted) <= set(ids)


def test_what_scrolls_can_be_reached_and_named_by_keyboard_users(tree: Element) -> None:
    regions = [each for each in tree.all("div") if each.attributes.get("class") == "scroll"]
    assert len(regions) >= len(list(tree.all("table")))
    for each in regions:
        assert each.attributes["tabindex"] == "0"
        assert each.attributes["role"] == "region"
        assert plain(each.attributes["aria-label"])


def test_every_figure_has_a_name_a_sentence_and_its_data(
    pages: dict[str, str],
) -> None:
    shown = list(Tree(pages["sample"]).root.all("figure"))
    assert len(shown) == 5
    for each in shown:
        (image,) = each.all("svg")
        assert image.attributes["role"] == "img"
        assert plain(next(each.all("figcaption")).text) == next(image.all("desc")).text
        (details,) = each.all("details")
        assert next(details.all("summary")).text == "Data of this figure"
        assert len(list(details.all("table"))) == 1


# -- safety -----------------------------------------------------------------------------------


def test_nothing_runs_and_nothing_is_loaded(page: str, tree: Element) -> None:
    harmless = {"html", "head", "meta", "title", "style", "body", "main", "nav", "section"}
    harmless |= {"h1", "h2", "h3", "p", "a", "em", "code", "span", "bdi", "ul", "li", "div"}
    harmless |= {"dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    harmless |= {"figure", "figcaption", "details", "summary"}
    harmless |= {"svg", "desc", "defs", "g", "path", "text", "use", "pattern", "clippath", "rect"}
    assert {each.tag for each in tree.all()} <= harmless
    names = {name for each in tree.all() for name in each.attributes}
    assert not [name for name in names if name.startswith("on")]
    assert not names & {"src", "srcset", "action", "formaction", "poster", "ping", "srcdoc"}
    css = next(tree.all("style")).text
    assert "@import" not in css
    assert "url(" not in css
    assert "://" not in page


def test_a_policy_forbids_what_the_page_does_not_do_anyway(tree: Element) -> None:
    metas = [each.attributes for each in tree.all("meta") if "http-equiv" in each.attributes]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert metas == [{"http-equiv": "Content-Security-Policy", "content": policy}]


def test_hostile_names_are_shown_as_they_are(pages: dict[str, str]) -> None:
    root = Tree(pages["hostile"]).root
    assert "<script" not in pages["hostile"]
    assert not list(root.all("script", "b"))
    cells = [cell.text for each in root.all("table") for cell in each.all("th", "td")]
    expected = sample_analysis.SCRIPT + sample_analysis.QUOTES
    assert sum(cell.startswith(expected) for cell in cells) > 50
    assert not [cell for cell in cells if "49" in cell and "alert" in cell]


def test_every_free_text_is_shown_somewhere_on_the_page() -> None:
    document = sample_analysis.sample()
    marked: list[str] = []

    def mark(key: str, leaf: Any) -> Any:
        free = isinstance(leaf, str) and key not in (*sample_analysis.FIXED, "state", "value")
        if not free or leaf in ("unknown", ""):
            return leaf
        marked.append(f"<i>{len(marked)}</i>")
        return marked[-1]

    places = ("input", "repairs", "unreadable", "quality", "applications", "concentration")
    for place in places:
        document[place] = sample_analysis.mapped(document[place], mark)
    wall = document["wall_ended"]
    wall["largest_runs"] = sample_analysis.mapped(wall["largest_runs"], mark)
    shown = Tree(report.render(document)).root.text
    assert len(marked) > 60
    assert [text for text in marked if text not in shown] == []


@pytest.mark.parametrize("name", ["\udcff\udc80", "a\nb\tc", "\x00\x1b[31m", "\u202eabc"])
def test_a_name_that_does_not_print_is_shown_as_escapes_in_one_line(name: str) -> None:
    document = sample_analysis.sample()
    wall = document["wall_ended"]
    wall["top_user"]["user"] = document["concentration"][0]["user"] = name
    wall["largest_runs"][0]["user"] = document["quality"][0]["detail"] = name
    page = report.render(document)
    page.encode("utf-8")
    escaped = name.encode("unicode_escape", "surrogatepass").decode()
    assert page.count(escaped) >= 4
    assert name not in page


# -- determinism ------------------------------------------------------------------------------


def test_the_same_document_gives_the_same_bytes(pages: dict[str, str]) -> None:
    code = (
        "import sys, sample_analysis; from cedana_poc import report\n"
        "sys.stdout.buffer.write(report.render(sample_analysis.sample()).encode())"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    for seed, zone in (("1", "UTC"), ("2", "America/Lima")):
        surroundings = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": seed, "TZ": zone}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=surroundings, capture_output=True, check=True)
        assert done.stdout == pages["sample"].encode()


def test_rendering_leaves_the_document_as_it_was() -> None:
    document = sample_analysis.sample()
    before = copy.deepcopy(document)
    report.render(document)
    assert document == before


def test_the_page_stays_far_below_two_megabytes(page: str) -> None:
    assert len(page.encode()) < 400_000


# -- what it says -----------------------------------------------------------------------------


def test_the_headline_says_it_by_number_and_by_resources(pages: dict[str, str]) -> None:
    text = plain(next(Tree(pages["sample"]).root.all("main")).text)
    assert (
        "4,720 of 184,211 runs (2.6 %) ended at their time limit. They used 42,898 of 170,942 "
        "node-hours (25.1 %) and 55,524 of 177,852 GPU-hours (31.2 %). A checkpoint could have "
        "covered 22,299 of these node-hours (52.0 % of them): they are addressable." in text
    )
    assert "exposed: an upper bound, not a loss" in text
    assert (
        "One user, user-3fa9c1, has 31.2 % of them; without that user it is 3,248 runs (2.0 % of "
        "the others' runs) and 29,514 node-hours (19.6 %)." in text
    )
    assert "The data raise doubts: 2 warnings, 1 check was not possible." in text


def test_the_word_lost_is_never_used_of_accounting_evidence(page: str) -> None:
    assert not re.search(r"\blost\b", page, re.IGNORECASE)


def test_kinds_add_up_to_the_wall_ended_and_the_near_ones_are_counted_once(
    pages: dict[str, str],
) -> None:
    head, *rows = table(Tree(pages["sample"]).root, "Runs by how they ended")
    assert head[:4] == ["Kind", "Runs", "Share of runs (%)", "Node-hours (nodes touched)"]
    runs = {row[0]: int(row[1].replace(",", "")) for row in rows}
    kinds = list(runs)[1:5]
    assert sum(runs[kind] for kind in kinds) == runs["Wall-ended: exposed"] == 4720
    assert runs["Another state at the limit"] == 188
    assert runs["Another state near the limit, not ended by it"] == 514
    assert runs["TIMEOUT that was not the limit"] == 214 + 31 + 12


def test_addressable_and_what_is_not_add_up_to_the_exposed(pages: dict[str, str]) -> None:
    _, *rows = table(Tree(pages["sample"]).root, "Exposed resources, addressable and not")
    runs = [int(row[1].replace(",", "")) for row in rows]
    assert sum(runs[:-1]) == runs[-1] == 4720


@pytest.mark.parametrize("name", ["sample", "no_runs"])
def test_rows_read_are_those_used_and_those_left_out(name: str, pages: dict[str, str]) -> None:
    _, read, *others = table(Tree(pages[name]).root, "Account of every row")
    numbers = [int(row[1].replace(",", "")) for row in others]
    assert sum(numbers) == int(read[1].replace(",", ""))


def test_a_state_of_the_data_is_said_in_words(pages: dict[str, str]) -> None:
    _, *rows = table(Tree(pages["sample"]).root, "Checks of the data")
    assert [row[1] for row in rows] == ["ok", "note", "warning", "unknown", "warning", "ok"]


def test_where_nothing_applies_there_is_a_dash_and_where_nothing_is_known_the_word(
    pages: dict[str, str],
) -> None:
    _, *rows = table(Tree(pages["sample"]).root, "Wall-ended runs and their followers")
    assert rows[-1][1:] == ["368", "\N{EN DASH}", "\N{EN DASH}"]
    _, *states = table(Tree(pages["unknown"]).root, "All runs that ended, by state")
    assert states[0] == ["COMPLETED", "161,004", "87.4", *["unknown"] * 7]


def test_an_unknown_document_says_what_would_fill_each_part(pages: dict[str, str]) -> None:
    root = Tree(pages["unknown"]).root
    missing = [plain(each.text) for each in root.all("p") if each.attributes.get("class")]
    for column in ("Partition", "Timelimit", "NNodes", "AllocTRES", "User", "End", "SubmitLine"):
        assert any(column in line for line in missing), column
    assert "--nodes FILE" in root.text
    assert not re.search(r"\b(None|nan|inf|null)\b", next(root.all("main")).text)
    assert "They used an unknown number of node-hours" in plain(root.text)


def test_a_file_without_ended_runs_says_so_and_still_accounts_for_its_rows(
    pages: dict[str, str],
) -> None:
    root = Tree(pages["no_runs"]).root
    assert "None of the 523,182 rows read is a run that ended" in plain(root.text)
    found = [each.attributes["aria-labelledby"] for each in root.all("section")]
    assert found == ["rows", "quality", "method", "provenance"]


def test_a_cluster_where_nothing_ended_at_its_limit_has_no_share_of_nothing() -> None:
    document = sample_analysis.sample()
    empty = sample_analysis.no_runs()["wall_ended"]
    document["wall_ended"] = empty | {"share_of_runs": 0.0, "share_of_node_hours": 0.0}
    for rows in document["breakdowns"].values():
        for row in rows:
            row["wall_ended"] = sample_analysis.scaled(sample_analysis.WALL, 0.0)
    document["concentration"] = []
    document["repeats"]["chains"] = []
    text = plain(Tree(report.render(document)).root.text)
    assert "None of 184,211 runs ended at its time limit." in text
    assert "No run ended at its time limit." in text


def test_gpus_are_not_spoken_of_where_there_are_none() -> None:
    document = sample_analysis.sample()
    document["totals"]["gpu_hours"] = document["wall_ended"]["gpu_hours"] = 0.0
    root = Tree(report.render(document)).root
    lead = next(each for each in root.all("p") if each.attributes.get("class") == "lead")
    assert "GPU" not in lead.text
    assert "GPU" not in next(root.all("dl")).text
    _, wall_ended, *_ = table(root, "Runs by how they ended")
    assert wall_ended[7:9] == ["0.0", "\N{EN DASH}"]


def test_the_only_user_of_a_cluster_is_one_user() -> None:
    document = sample_analysis.sample()
    document["totals"]["users"] = 1
    kicker = next(Tree(report.render(document)).root.all("p"))
    assert plain(kicker.text).endswith("(91 days), 1 user")


def test_a_document_with_a_part_missing_is_an_error_and_not_a_gap() -> None:
    document = sample_analysis.sample()
    del document["window"]["days"]
    with pytest.raises(UndefinedError, match="days"):
        report.render(document)


def test_inputs_are_named_with_their_checksums_and_options(pages: dict[str, str]) -> None:
    root = section(Tree(pages["sample"]).root, "provenance")
    _, first, _ = table(root, "Input files")
    assert first[0] == "exports/sacct-2026-q2.txt"
    assert first[2:] == ["301,118", "181,204,118", "3" * 64]
    options = dict(table(root, "Options")[1:])
    assert options["Time zone"] == "Europe/Berlin"
    assert options["Until"] == "the last row"
    assert "c" * 64 in options["Node list"]
    assert "cedana-poc 0.1.0" in root.text


# -- colours ----------------------------------------------------------------------------------


def palettes() -> dict[str, dict[str, str]]:
    css = resources.files("cedana_poc.reports").joinpath("templates/style.css").read_text("utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    both = {"light": light, "dark": dark}
    return {name: dict(re.findall(r"--(\w+): (#\w{6})", text)) for name, text in both.items()}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "muted", "accent"])
def test_text_stands_out_from_the_page(scheme: str, text: str) -> None:
    palette = palettes()[scheme]
    assert contrast(palette[text], palette["page"]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("shape", "ground"),
    [("accent", "page"), ("quiet", "page"), ("accent", "band"), ("quiet", "band"), ("ink", "page")],
)
def test_what_a_figure_draws_stands_out_from_what_is_behind(
    scheme: str, shape: str, ground: str
) -> None:
    palette = palettes()[scheme]
    minimum = 3.0 if ground == "page" else 2.5
    assert contrast(palette[shape], palette[ground]) >= minimum


def test_both_schemes_define_the_same_colours_and_nothing_else_is_coloured() -> None:
    css = resources.files("cedana_poc.reports").joinpath("templates/style.css").read_text("utf-8")
    assert set(palettes()["light"]) == set(palettes()["dark"])
    outside = re.sub(r":root \{.*?\}", "", css, flags=re.DOTALL)
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", outside)


# -- in a browser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def files(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {name: folder / f"{name}.html" for name in pages}
    for name, path in written.items():
        path.write_text(pages[name], "utf-8")
    return written


def test_the_browser_of_these_tests_runs_no_script_and_sees_every_request(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<title>as written</title><img src='http://outside.invalid/image.png'>"
        "<script>document.title = 'changed'</script>"
    )
    browser.requests()
    browser.open(page, 1280)
    assert browser.value("document.title") == "as written"
    assert browser.requests() == [page.as_uri(), "http://outside.invalid/image.png"]


@pytest.mark.parametrize("name", list(DOCUMENTS))
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_the_window_and_asks_for_nothing(
    browser: Browser, files: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    browser.requests()
    browser.open(files[name], width, dark=dark)
    assert browser.value("window.innerWidth") == width
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.requests() == [files[name].as_uri()]
    page = palettes()["dark" if dark else "light"]["page"]
    shown = "rgb({}, {}, {})".format(*(int(page[place : place + 2], 16) for place in (1, 3, 5)))
    assert browser.value("getComputedStyle(document.body).backgroundColor") == shown


@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_nothing_is_cut_off_on_paper(browser: Browser, files: dict[str, Path], name: str) -> None:
    within_a4_margins = 688
    browser.open(files[name], within_a4_margins)
    browser.command("Emulation.setEmulatedMedia", media="print")
    too_wide = (
        "[...document.querySelectorAll('table, svg, p, h1, h2, h3, td, th')]"
        ".filter(each => each.getBoundingClientRect().right > innerWidth + 0.5)"
        ".map(each => each.tagName + ' ' + each.textContent.slice(0, 60))"
    )
    assert browser.value(too_wide) == []
    assert browser.pdf().startswith(b"%PDF-")


def test_paper_shows_the_data_of_figures_and_is_never_dark(
    browser: Browser, files: dict[str, Path]
) -> None:
    browser.open(files["sample"], 688, dark=True)
    visible = "document.querySelector('details table').checkVisibility()"
    assert browser.value(visible) is False
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.command("Emulation.setEmulatedMedia", media="print", features=features)
    assert browser.value(visible) is True
    assert browser.value("getComputedStyle(document.body).color") == "rgb(27, 32, 38)"


def test_a_screen_reader_is_told_what_each_figure_and_table_is(
    browser: Browser, files: dict[str, Path]
) -> None:
    browser.open(files["sample"], 1280)
    images = browser.names("image")
    assert len(images) == 5
    assert images[0].startswith("Exposed hours by partition Bars of exposed node-hours")
    tables = browser.names("table")
    assert "Runs by how they ended" in tables
    assert all(tables)
    assert len(browser.names("heading")) > 15
