"""The site: every page is in the navigation, every method has a page, and a browser asks no other host."""

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import domainadaptor as da

CLONE = Path(__file__).parents[2]
DOCS = CLONE / "docs"
SECTIONS = ["Formula", "Compared with its authors' code", "Cost, numbers and options"]


@pytest.mark.parametrize("name", da.list_methods())
def test_every_method_has_a_page_with_all_sections(name):
    text = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS
    assert f"```{{method-card}} {name}\n" in text
    idea = text.partition("\n\n")[2].partition("\n\n## ")[0]
    assert 3 <= len(re.findall(r"[.!?](?=\s|$)", idea)) <= 8, "the idea in about five sentences"


def test_no_page_is_about_a_method_that_does_not_exist():
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {"index", *da.list_methods()}


def test_every_guide_says_what_the_reader_will_be_able_to_do():
    pages = [*(DOCS / "guides").glob("*.md"), *(DOCS / "concepts").glob("*.md")]
    for path in pages:
        if path.stem != "index":
            opening = path.read_text(encoding="utf-8").split("\n\n")[1]
            assert opening.startswith(("After this guide", "After this page")), path


def test_external_links_are_well_formed():
    from urllib.parse import urlsplit

    for path in [*DOCS.rglob("*.md"), CLONE / "README.md"]:
        for link in re.findall(r"\]\((https?:[^)]+)\)", path.read_text(encoding="utf-8")):
            parts = urlsplit(link)
            assert parts.scheme == "https" or parts.hostname == "127.0.0.1", link
            assert re.fullmatch(r"[\w.-]+\.\w+", parts.hostname or ""), link


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with warnings as errors."""
    pytest.importorskip("furo", reason="the site needs the extra docs")
    if not (DOCS / "results").is_dir():
        pytest.skip("the sdist has no results")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", str(DOCS), str(folder / "html")]
    done = subprocess.run([*words, "-d", str(folder / "doctrees")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow
def test_pages_ask_no_other_host_and_fit_a_phone(site):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    from playwright.sync_api import sync_playwright

    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    asked, wide, errors = set(), [], []
    try:
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 390, "height": 800})
            page.on("request", lambda request: asked.add(request.url))
            page.on("pageerror", lambda error: errors.append(str(error)))
            for path in sorted(site.rglob("*.html")):
                page.goto(f"{address}/{path.relative_to(site)}")
                if page.evaluate("document.documentElement.scrollWidth > 391"):
                    wide.append(str(path.relative_to(site)))
            page.goto(f"{address}/search.html?q=calibrate")
            page.wait_for_selector("#search-results li a", timeout=20_000)
            found = page.locator("#search-results li a").first.inner_text()
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    assert {url for url in asked if not url.startswith((address, "data:"))} == set()
    assert wide == []
    assert errors == []
    assert found
