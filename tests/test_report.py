"""The report: one page that needs nothing else, on a phone, in print, in light and dark."""

import base64
import re
import shutil
from html.parser import HTMLParser

import pytest
import tiny_papers

from dmlcore.reproduce import chapters, claims, manifest
from dmlcore.reproduce.claims.rules import GROUPS
from dmlcore.reproduce.manifest import Folders, PaperJob
from dmlcore.reproduce.texts import Answer, Comparison, Summary

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + (900).to_bytes(4, "big") + (300).to_bytes(4, "big")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


PARAMETERS = tiny_papers.Tiny(output="")
FIGURES = {"curve.svg": "A curve, <i>falling</i>.", "wide.png": 'Two "panels".'}
COMPARED = Comparison(
    paper="Figure 1: speed", ours="curve.svg", verdict="differs", because="their cluster was faster"
)
CLAIM = tiny_papers.CLAIM.model_copy(update={"finding": "It pays."})
ANSWER = Answer(claim="It is fast", where="on hills", why="it rolls")
SUMMARY = Summary(answers=(ANSWER,), choice="Take it downhill.")
PAPERS = {
    "swift": tiny_papers.PAPERS["swift"].model_copy(
        update={
            "figures": FIGURES,
            "comparisons": (COMPARED,),
            "claims": (CLAIM,),
            "summary": SUMMARY,
        }
    )
}


@pytest.fixture
def folders(tmp_path):
    """What one finished run leaves."""
    folders = Folders.below(tmp_path)
    output = folders.figures / "swift"
    PAPERS["swift"].conclude(
        {"swift-1": [1.5, 3.5, *[2.5] * 6]},
        PARAMETERS.model_copy(update={"output": str(output)}),
        data="toys",
    )
    (output / "curve.svg").write_bytes(SVG)
    (output / "wide.png").write_bytes(PNG)
    return folders


def written(folders):
    path = chapters.report(folders, PAPERS)
    assert path == folders.runs / "report.html"
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_nothing_is_fetched_and_the_same_files_give_the_same_page(folders):
    text, page = written(folders)
    assert text == written(folders)[0]
    addresses = [a[key] for _, a in page.tags for key in ("src", "href", "srcset", "data") if key in a]
    assert addresses
    assert all(address.startswith(("data:image/", "#")) for address in addresses)
    assert not re.search(r"@import|url\(|<script|https?://(?!www\.w3\.org/2000/svg)", text)
    anchors = {a["id"] for _, a in page.tags if "id" in a}
    assert {address[1:] for address in addresses if address.startswith("#")} <= anchors
    assert len(anchors) == sum("id" in a for _, a in page.tags)


def test_every_picture_has_a_text_and_keeps_its_place(folders):
    _, page = written(folders)
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert [each["alt"] for each in pictures] == list(FIGURES.values())
    assert ("width" in pictures[0], pictures[1]["width"], pictures[1]["height"]) == (False, "900", "300")
    assert [a.get("tabindex") for tag, a in page.tags if a.get("class") == "wide"] == ["0"]


def test_claims_are_there_with_verdict_interval_finding_and_command(folders):
    text, page = written(folders)
    ledger = claims.read(folders.figures / "swift" / "claims.json")
    assert "It is &lt;b&gt;fast&lt;/b&gt;" in text
    assert "swift &amp; co" in text
    told = (
        "swift-1",
        ">= 1x",
        "2.5x",
        "1.5 to 3.5x, 8 seeds",
        "1 our own",
        "1 reproduced",
        "Data: toys",
        ledger.runs[0].command,
        "Where it must hold: toys.",
        "holds in 1",
    )
    short = ("It is fast", "on hills", "it rolls", "Take it downhill.")
    for said in (
        *told,
        *short,
        "It pays.",
        "Figure 1",
        "differs",
        "their cluster",
        "A curve, <i>falling</i>.",
    ):
        assert said in page.text


def run_here(folders):
    """What was published is what a run here gave."""
    shutil.copytree(folders.figures / "swift", manifest.made("swift", folders))
    made_from = {"parameters": PARAMETERS.model_dump(mode="json")}
    manifest.write(PaperJob(PAPERS["swift"], PARAMETERS), folders, made_from, [60.0, 14.6])


def test_machine_and_time_of_a_run_are_told(folders):
    run_here(folders)
    _, page = written(folders)
    (made,) = claims.read(folders.figures / "swift" / "claims.json").runs
    assert made.hardware["cpu"] == claims.hardware()["cpu"]
    for said in (f"cores of {made.hardware['cpu']}", f"numpy {made.versions['numpy']}", "1 min 15 s"):
        assert said in page.text


def test_a_run_that_failed_is_told_where_it_was_made(folders):
    """By the place of its results."""
    chapters.report(folders, PAPERS, ["swift"])
    told = "The newest run of this notebook at quick scale failed."
    assert told in (folders.runs / "report.html").read_text(encoding="utf-8")
    chapters.report(folders, PAPERS, ["full/swift"])
    assert told.replace("quick", "full") in (folders.runs / "report.html").read_text(encoding="utf-8")
    assert "newest run" not in written(folders)[0]


def test_results_are_those_of_the_last_run_here_if_it_is_whole(folders):
    declared = "about 2 s on two CPU cores"
    assert declared in written(folders)[1].text
    own = manifest.made("swift", folders) / "curve.svg"
    run_here(folders)
    own.write_bytes(SVG + b" ")
    made_from = {"parameters": PARAMETERS.model_dump(mode="json")}
    manifest.write(PaperJob(PAPERS["swift"], PARAMETERS), folders, made_from, [60.0, 14.6])
    text, page = written(folders)
    assert "1 min 15 s" in page.text
    assert base64.b64encode(SVG + b" ").decode() in text
    own.write_bytes(SVG + b"  ")  # of a run that was cut short
    text, page = written(folders)
    assert declared in page.text
    assert base64.b64encode(SVG).decode() in text


def test_pictures_of_both_scales_stand_together(folders):
    """The picture of quick scale is folded away."""
    path = folders.figures / "full/swift/curve.svg"
    path.parent.mkdir(parents=True)
    path.write_bytes(SVG + b" ")
    text, page = written(folders)
    figure = text[text.index('<figure id="swift-curve.svg">') :]
    at = [figure.index(base64.b64encode(shot).decode()) for shot in (SVG + b" ", SVG)]
    assert at[0] < figure.index("<details>") < at[1] < figure.index("</details>")
    assert sum(tag == "img" for tag, _ in page.tags) == 3


def test_a_reader_meets_answers_first_and_checks_of_our_own_work_last(folders):
    """All claims have findings; those of theory and conformance are folded."""
    output = folders.figures / "swift"
    made = [CLAIM.model_copy(update={"id": source, "source": source}) for source in GROUPS]
    paper = PAPERS["swift"].model_copy(update={"claims": tuple(reversed(made))})
    paper.conclude(
        {each.id: [1.5, 2.5, float(place)] for place, each in enumerate(made)},
        PARAMETERS.model_copy(update={"output": str(output)}),
        data="toys",
    )
    chapters.report(folders, {"swift": paper})
    text = (folders.runs / "report.html").read_text(encoding="utf-8")
    places = [text.index(f'id="swift-{source}"') for source in ("abstract", "ours", "theory", "conformance")]
    order = [text.index("It rolls".lower()), *places, text.index("Figure 1"), text.index("<figure")]
    assert order == sorted(order)
    folds = [text[:place].count("<details") - text[:place].count("</details") for place in places]
    assert folds == [0, 0, 1, 1]
    assert text.count("It pays.") == 4
    assert text.index("It pays.") > places[0]


def test_settings_of_all_runs_are_below_their_claim(folders):
    """Published ones, and those of a run here that measured further ones."""
    claim = CLAIM.model_copy(update={"parts": ("uphill", "downhill", "level")})
    paper = PAPERS["swift"].model_copy(update={"claims": (claim,)})
    full = PARAMETERS.model_copy(update={"output": str(folders.figures / "swift"), "scale": "full"})
    paper.conclude({"swift-1": {"uphill": [0.5, *[0.6] * 7]}}, full, data="toys")
    own = manifest.made("swift", folders)
    own.mkdir(parents=True)
    here = PARAMETERS.model_copy(update={"output": str(own)})
    paper.conclude({"swift-1": {"uphill": [1.5] * 8, "downhill": [1.7, *[1.6] * 7]}}, here, data="toys")
    manifest.write(PaperJob(paper, PARAMETERS), folders, {"parameters": {}}, [1.0])
    chapters.report(folders, {"swift": paper})
    page = Page((folders.runs / "report.html").read_text(encoding="utf-8"))
    shown = " ".join(page.text.split())
    assert "in part (holds in 1 of 3 settings, fails in 1, not run in 1)" in shown
    assert "3 settings settingmeasuredintervaloutcome" in shown
    assert "uphill0.6x0.5 to 0.6x, 8 seedsfails downhill1.6x1.6 to 1.7x, 8 seedsholds level-not run" in shown
    commands = [
        claims.read(path / "claims.json").runs[0].command for path in (folders.figures / "swift", own)
    ]
    assert all(command in page.text for command in commands)


def test_light_and_dark_phone_and_print(folders):
    text, page = written(folders)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "@media screen and (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [a for _, a in page.tags]
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    for colors in (light, dark):
        named = dict(re.findall(r"--(\w+): (#\w{6})", colors))
        for name in ("text", "soft", "link", "good", "some", "bad", "open"):
            for ground in ("page", "box"):
                assert contrast(named[name], named[ground]) >= 4.5, (name, ground)


def contrast(one, other):
    """The contrast of two colours as WCAG 2 defines it, 1 to 21; 4.5 is what text needs."""

    def luminance(color):
        channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(luminance(color) for color in (one, other))
    return (high + 0.05) / (low + 0.05)
