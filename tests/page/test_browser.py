"""The page in a real browser, as a person uses it."""

import csv
import shutil
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.lab.networks.checkpoint import load_checkpoint
from domainadaptor.page import pictures
from tests.page.pictures import write_folder

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium (apt-get install chromium)")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
RESULT = "#found:not([hidden])"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield started
        started.close()


@pytest.fixture
def page(browser, address):
    """An opened page; at the end, all requests went to it and the browser had nothing to complain about."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    opened = context.new_page()
    requests, complaints = [], []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda message: complaints.append(message.text))
    opened.goto(address)
    opened.wait_for_selector("body[data-ready]")
    yield opened
    context.close()
    asked = {urlsplit(url).netloc for url in requests if not url.startswith(("data:", "blob:"))}
    assert asked == {urlsplit(address).netloc}
    # The browser reports each answer with an error by itself.
    assert not [text for text in complaints if "the server responded with a status of 400" not in text]


def shown(page, selector):
    return page.locator(selector).inner_text()


def download(page, button, folder) -> Path:
    with page.expect_download() as caught:
        page.click(button)
    path = folder / caught.value.suggested_filename
    caught.value.save_as(path)
    return path


def test_one_press_shows_what_adapting_did(page, tmp_path):
    page.wait_for_selector("#preview img")
    page.click("#run")
    page.wait_for_selector(RESULT)
    assert shown(page, "#headline")
    assert "Of 200 images with a known class" in shown(page, "#sentences")
    assert shown(page, "#subject") == f"{DEFAULT_METHOD} · the demo network · sample digits (pen)"
    assert page.locator("#cards li img").count()
    assert page.locator("#bars span").count() == 7
    page.get_by_label("All 200").check()
    assert page.locator("#cards li img").count() == 24
    page.click("text=Show more")
    assert page.locator("#cards li img").count() > 24
    with download(page, "#table", tmp_path).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    changed = sum(row["source_prediction"] != row["adapted_prediction"] for row in rows)
    assert len(rows) == 200
    assert f"Changed {changed}" in shown(page, "#filter")
    card = load_checkpoint(download(page, "#checkpoint", tmp_path)).card
    assert (card.calibration["images"], card.calibration["folder"]) == (200, "sample digits (pen)")
    assert shown(page, "#checkpoint") == "Calibrated network (checkpoint)"


def test_a_folder_of_ones_own(page, tmp_path):
    page.set_input_files("#folder", write_folder(tmp_path / "mine"))
    page.wait_for_selector("text=25 images. The class of 25 is known from their folder.")
    assert shown(page, "#refused summary") == "1 file left out"
    page.select_option("#corruption", "fog")
    page.focus("#severity")
    page.keyboard.press("End")
    assert shown(page, "#severity-value") == "5 of 5"
    page.click("#run")
    page.wait_for_selector(RESULT)
    assert "Of 24 images with a known class" in shown(page, "#sentences")
    assert "your images · fog, 5 of 5" in shown(page, "#subject")
    page.get_by_label("Left out 1").check()
    assert "half.png: not a readable image" in shown(page, "#cards")


def test_images_without_folders_get_no_accuracy(page, tmp_path):
    files = list(write_folder(tmp_path / "mine", 12).glob("*/[0-9]*.png"))
    page.set_input_files("#images", files)
    page.wait_for_selector("text=No folder is named after a class")
    page.click("#run")
    page.wait_for_selector(RESULT)
    assert "Accuracy" not in shown(page, "#numbers")
    assert "Only 12 images adapted together." in shown(page, "#warnings")


def test_a_dropped_folder_is_read(page, tmp_path):
    write_folder(tmp_path / "mine", 6)
    page.evaluate("""() => {
        const file = (name) => ({ isFile: true, name, file: (done) => done(new File(["text"], name)) });
        const folder = { isFile: false, name: "mine", createReader: () => {
            const parts = [[file("a.png")], [file("b.png"), file(".hidden")], []];
            return { readEntries: (done) => done(parts.shift()) };
        } };
        const event = new Event("drop", { bubbles: true, cancelable: true });
        event.dataTransfer = { items: [{ webkitGetAsEntry: () => folder }] };
        document.dispatchEvent(event);
    }""")
    page.wait_for_selector("text=None of these files is an image that can be read.")
    assert shown(page, "#refused summary") == "2 files left out"
    assert "mine/a.png: Not a readable image" in shown(page, "#refused ul")


def test_mistakes_are_explained_in_place(page, tmp_path):
    page.check("input[value=other]")
    page.click("#run")
    assert "Type the path" in shown(page, "[data-stage=network] .error")
    page.fill("#file", "nothing.safetensors")
    page.press("#file", "Tab")
    page.wait_for_selector("[data-stage=network] .error >> text=No checkpoint at 'nothing.safetensors'")
    page.click("#run")
    page.wait_for_selector("[data-stage=images] .error >> text=Choose a folder or some images first.")
    page.check("input[value=demo]")
    page.check("input[value=sample]")
    page.click("text=Batch size")
    page.fill("#batch", "0")
    page.click("#run")
    assert "a whole number from 1 to 512" in shown(page, "[data-stage=method] .error")
    page.fill("#batch", "64")
    page.click("#run")
    page.wait_for_selector(RESULT)
    assert page.locator(".error:visible").count() == 0


def test_cancel_ends_a_run(page, monkeypatch):
    """The reader waits in the tenth image until Cancel was pressed."""
    read, proceed = [], threading.Event()
    fitted = pictures.Pictures.fitted

    def slow(self, *arguments):
        def reader(name):
            read.append(name)
            assert len(read) != 10 or proceed.wait(60)
            return inner(name)

        inner = fitted(self, *arguments)
        return reader

    page.wait_for_selector("#preview img")
    monkeypatch.setattr(pictures.Pictures, "fitted", slow)
    page.click("#run")
    page.wait_for_selector("#doing >> text=of 200")
    assert page.locator("#run").is_disabled()
    page.click("#cancel")
    page.wait_for_selector("text=Canceled. Nothing of this run was kept.")
    monkeypatch.setattr(pictures.Pictures, "fitted", fitted)
    proceed.set()
    page.click("#run")
    page.wait_for_selector(RESULT)
    assert len(read) < 200


def test_the_keyboard_is_enough(page):
    def walk_to(selector):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                outline = "(e => getComputedStyle(e).outlineStyle)(document.activeElement)"
                return page.evaluate(outline)
        raise AssertionError(f"Tab does not reach {selector}")

    walk_to("#corruption")
    page.keyboard.type("snow")
    assert walk_to("#severity") == "solid"
    page.keyboard.press("ArrowRight")
    assert shown(page, "#severity-value") == "4 of 5"
    assert walk_to("#run") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector(RESULT)
    assert page.evaluate("document.activeElement.id") == "headline"
    assert "snow, 4 of 5" in shown(page, "#subject")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    assert "All 200" in page.evaluate("document.activeElement.parentElement.textContent")
    assert walk_to("#table") == "solid"


@pytest.mark.parametrize("width", [360, 1800])
def test_no_width_needs_scrolling_to_the_side(page, width, tmp_path):
    page.set_viewport_size({"width": width, "height": 740})
    page.set_input_files("#folder", write_folder(tmp_path / ("long-name-" * 20)))
    page.wait_for_selector("text=25 images.")
    page.click("#run")
    page.wait_for_selector(RESULT)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name(page):
    unnamed = page.evaluate("""() => [...document.querySelectorAll("input, select, button, summary")]
        .filter((e) => e.checkVisibility() && !(e.labels?.length || e.textContent.trim() || e.ariaLabel))
        .map((e) => e.outerHTML)""")
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(page, scheme):
    """At least 4.5 to 1 (WCAG AA), computed from the colors that the browser shows."""
    page.emulate_media(color_scheme=scheme)
    page.click("#run")
    page.wait_for_selector(RESULT)
    page.check("input[value=other]")
    page.click("#run")
    page.wait_for_selector(".error:visible")
    poor = page.evaluate("""() => {
        const channels = (color) => color.match(/[\\d.]+/g).map(Number);
        const light = (color) => channels(color).slice(0, 3).map((c) => c / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
        const behind = (e) => {
            for (; e; e = e.parentElement) {
                const found = channels(getComputedStyle(e).backgroundColor);
                if (found.length === 3 || found[3] === 1) return getComputedStyle(e).backgroundColor;
            }
            return "rgb(255, 255, 255)";
        };
        return [...document.querySelectorAll("body *")]
            .filter((e) => e.checkVisibility() && !e.disabled)
            .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
            .map((e) => {
                const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
                return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 80)];
            }).filter(([contrast]) => contrast < 4.5);
    }""")
    assert poor == []
