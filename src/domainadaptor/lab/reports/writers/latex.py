"""Tables as LaTeX, in the paper's layout; they need the package booktabs."""

import re

from domainadaptor.lab.reports.grid import Entry, Grid
from domainadaptor.lab.reports.sections import Chapter
from domainadaptor.lab.reports.tables import MEAN

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "−": "$-$", "…": r"\dots{}", "↳": "", "α": r"$\alpha$", "β": r"$\beta$",
    "γ": r"$\gamma$", "λ": r"$\lambda$", "µ": r"$\mu$", "μ": r"$\mu$", "σ": r"$\sigma$", "≤": r"$\le$",
    "≥": r"$\ge$", "×": r"$\times$", "→": r"$\to$", "≈": r"$\approx$", "²": r"$^2$",
}  # fmt: skip
_LATIN = 0x24F  # the last letter that a usual font of LaTeX has
_NUMBER = re.compile(r"([+−]?\d[\d,.]*)(?: ± (\d[\d.]*))?( \(.*\))?")


def chapter(found: Chapter) -> str:
    """One experiment."""
    lines = [f"% {_comment(found.plan.title)}", f"% {_comment(found.plan.command)}", r"% \usepackage{booktabs}"]
    for section in found.sections:
        for number, grid in enumerate(section.shown.grids, 1):
            caption = ". ".join(
                part[0].upper() + part[1:].rstrip(".") for part in (section.title, section.sample, grid.caption) if part
            )
            label = f"tab:{section.name}" + (f"-{number}" if number > 1 else "")
            lines += ["", table(grid, caption, label)]
    if any(ord(letter) > _LATIN for line in lines[3:] for letter in line):
        lines.insert(3, "% has letters that pdflatex does not know: use lualatex or xelatex, with a font that has them")
    return "\n".join(lines) + "\n"


def table(grid: Grid, caption: str, label: str) -> str:
    """A table with its caption; the best of a column is bold, a mean over the others stands apart."""
    apart = {
        at
        for at, name in enumerate(grid.columns)
        if name == MEAN and set(range(at + 1, len(grid.columns))) <= set(grid.paper_columns)
    }
    columns = "".join("|c" if at in apart else "c" for at in range(len(grid.columns)))
    head = " & ".join([escape(grid.corner), *(rf"\textbf{{{escape(name)}}}" for name in grid.columns)])
    lines = [r"\begin{table}[t]", r"  \centering", rf"  \caption{{{escape(caption)}.}}", rf"  \label{{{label}}}",
             rf"  \begin{{tabular}}{{l|{columns}}}", r"    \toprule", rf"    {head} \\", r"    \midrule"]  # fmt: skip
    group = ""
    for at, line in enumerate(grid.lines):
        if line.group != group and not line.muted:
            lines += [r"    \midrule"] if at else []
            if line.group:
                wide = len(grid.columns) + 1
                lines += [
                    rf"    \multicolumn{{{wide}}}{{c}}{{\textbf{{\textit{{{escape(line.group)}}}}}}} \\",
                    r"    \midrule",
                ]
            group = line.group
        name = rf"\quad\footnotesize {escape(line.label)}" if line.muted else escape(line.label)
        lines.append(f"    {' & '.join([name, *map(_entry, line.entries)])} \\\\")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _entry(entry: Entry) -> str:
    match = _NUMBER.fullmatch(entry.text)
    if not match:
        text = escape(entry.text)
        text = rf"\textbf{{{text}}}" if entry.bold and text else text
    else:
        mean, deviation, rest = match.groups()
        mean = mean.replace("−", "-").replace(",", "{,}")
        mean = rf"\mathbf{{{mean}}}" if entry.bold else mean
        text = f"${mean}" + (rf"_{{\pm{deviation}}}" if deviation else "") + "$" + (" " + escape(rest) if rest else "")
    return rf"\footnotesize {text}" if entry.muted and text else text


def _comment(text: str) -> str:
    return " ".join(text.split())
