"""Markdown, LaTeX and one HTML page from templates; the page is rendered from the same Markdown."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
from markdown_it import MarkdownIt

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~&#$])")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "−": "$-$", "…": r"\dots{}", "×": r"$\times$", "α": r"$\alpha$",
}  # fmt: skip
_CODE = re.compile(r"((?<![`\\])`[^`\n|]+`(?!`))")  # in one line, and in one cell of a table
_NUMBER = re.compile(r"([+−]?\d[\d,.]*)(?: ± (\d[\d.]*))?( \(.*\))?")


def render(template: str, **values: Any) -> str:
    """Return a filled template, without runs of empty lines."""
    text = _environment().get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def html(markdown: str, images: Mapping[str, bytes] | None = None) -> str:
    """Return Markdown as HTML; figures are embedded, tables scroll sideways."""
    text = str(MarkdownIt("commonmark", {"html": True, "xhtmlOut": False}).enable("table").render(markdown))
    text = text.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
    for name, content in (images or {}).items():
        text = text.replace(f'src="figures/{name}.png"', f'src="data:image/png;base64,{b64encode(content).decode()}"')
    return re.sub(r'<p>(<img [^>]*alt="([^"]*)"[^>]*>)</p>', r"<figure>\1<figcaption>\2</figcaption></figure>", text)


def page(documents: Mapping[str, str], images: Mapping[str, bytes], **values: Any) -> str:
    """Return one page that needs no other file and no network."""
    return render("page.html.j2", documents={name: html(text, images) for name, text in documents.items()}, **values)


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def prose(text: str) -> str:
    """Return Markdown without HTML in it; only what is certainly code may hold what opens a tag."""
    parts = _CODE.split(text)
    return "".join(part if at % 2 else re.sub(r"<(?=[A-Za-z/!?])", "&lt;", part) for at, part in enumerate(parts))


def one_line(text: str) -> str:
    """Return text with every run of white space as one blank."""
    return " ".join(text.split())


def latex(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in one_line(text))


def latex_cell(text: str, bold: bool) -> str:
    """Return a cell with its deviation as an index."""
    match = _NUMBER.fullmatch(text)
    if not match:
        return rf"\textbf{{{latex(text)}}}" if bold and text else latex(text)
    mean, deviation, rest = match.groups()
    mean = mean.replace("−", "-").replace(",", "{,}")
    mean = rf"\mathbf{{{mean}}}" if bold else mean
    return f"${mean}" + (rf"_{{\pm{deviation}}}" if deviation else "") + f"${latex(rest) if rest else ''}"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("domainadaptor.lab.reports"), trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    environment.filters.update(
        md=escape, prose=prose, one_line=one_line, html=html, fence=_fence, first_sentences=_first_sentences,
        capitalized=lambda text: text[:1].upper() + text[1:], tex=latex, tex_cell=latex_cell,
    )  # fmt: skip
    return environment


def _fence(lines: Sequence[str]) -> str:
    """Return a fence that no line can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    return "`" * max(3, longest + 1)


def _first_sentences(text: str) -> str:
    match = re.match(r"(?:.*?(?:\.\s|$)){1,2}", text.strip(), re.DOTALL)
    return one_line(match[0]) if match else ""
