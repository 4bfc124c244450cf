"""A report and its forms: text for a terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from spark_connectors.pipelines.reports.plain import Table, safe, text_of

_STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5b6675;
--rule:#dde2e8;--c0:#2f6fde;--c1:#d9822b;--c2:#c23b55}
@media (prefers-color-scheme:dark){:root{--page:#12161c;
--card:#1a2029;--ink:#e4e8ee;--soft:#98a4b3;--rule:#2c3541;--c0:#6aa1ff;--c1:#f0a95c;--c2:#ff7d92}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:960px;margin:0 auto;padding:28px 20px 56px}
h1{font-size:1.6rem;margin:0}h2{font-size:1.05rem;margin:0 0 10px}
.under,.note{color:var(--soft);margin:2px 0 0}.note{font-size:.88rem;margin-top:10px}
.facts{display:flex;flex-wrap:wrap;gap:12px;margin:22px 0}
.facts div,section{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.facts div{padding:12px 14px;flex:1 1 190px}.facts b{display:block;font-size:1.2rem;font-weight:600;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere;line-height:1.25}
.facts span{color:var(--soft);font-size:.85rem}
section{padding:18px 20px;margin:16px 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
svg+table,.legend+.wide,.chart+.wide{margin-top:14px}
th{text-align:left;color:var(--soft);font-weight:500}
th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top;
overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}td:not(:first-child){white-space:nowrap}
.n{text-align:right;white-space:nowrap}th.n:last-child,td.n:last-child{padding-right:0}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:11px}svg text.label{fill:var(--ink);font-size:12px}
svg .grid{stroke:var(--rule);stroke-width:1}
.s0{fill:var(--c0)}.s1{fill:var(--c1)}.s2{fill:var(--c2)}
polyline{fill:none;stroke-width:2;stroke-linejoin:round}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}
.legend{display:flex;gap:18px;margin:6px 0 0 64px;color:var(--soft);font-size:.85rem}
.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.k0{background:var(--c0)}.k1{background:var(--c1)}.k2{background:var(--c2)}
details{margin:8px 0}summary{cursor:pointer;overflow-wrap:anywhere}
pre{background:var(--page);border:1px solid var(--rule);border-radius:8px;padding:10px 12px;
margin:8px 0;white-space:pre-wrap;overflow-wrap:anywhere;max-height:18em;overflow:auto;
font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace}
pre small{display:block;color:var(--soft);margin-bottom:4px}
"""
# Nothing may be loaded and nothing run, whatever a message body got past the escaping.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Sample(NamedTuple):
    """A message to look at. ``about`` says which it is."""

    about: str
    body: str


class Section(NamedTuple):
    """One part of a report. ``chart`` is SVG; ``samples``: heading -> messages."""

    table: Table
    chart: str = ""
    samples: Sequence[tuple[str, Sequence[Sample]]] = ()

    @property
    def title(self) -> str:
        """What it is about."""
        return self.table.title


class Report(NamedTuple):
    """What a report says, whichever form it gets."""

    title: str
    under: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]

    def lines(self) -> list[str]:
        """For a terminal."""
        width = max((len(name) for name, _ in self.facts), default=0)
        found = [safe(self.title), safe(self.under), ""]
        found += [f"  {name.ljust(width)}  {safe(value)}" for name, value in self.facts]
        found.append("")
        for section in self.sections:
            if not section.samples:
                found += text_of(section.table)
                continue
            found += [section.title]
            for heading, samples in section.samples:
                found.append(f"  {safe(heading)}")
                found += [f"    {safe(one.about)}: {safe(one.body)}" for one in samples]
            found.append("")
        return found


def html_of(report: Report) -> str:
    """The report as a whole page. Every text in it is escaped."""
    facts = "".join(
        f"<div><span>{escape(name)}</span><b>{escape(value)}</b></div>"
        for name, value in report.facts
    )
    sections = "".join(_section(section) for section in report.sections)
    title = escape(report.title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{title}</h1><p class="under">{escape(report.under)}</p>'
        f'<div class="facts">{facts}</div>{sections}</main></body></html>\n'
    )


def _section(section: Section) -> str:
    chart = f'<div class="chart">{section.chart}</div>' if section.chart else ""
    shown = section.table if section.table.rows or not section.samples else None
    table = _table(shown) if shown else ""
    samples = "".join(_samples(heading, found) for heading, found in section.samples)
    note = f'<p class="note">{escape(section.table.note)}</p>' if section.table.note else ""
    return f"<section><h2>{escape(section.title)}</h2>{chart}{table}{samples}{note}</section>"


def _table(table: Table) -> str:
    if not table.rows:
        return '<p class="note">None.</p>'

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if at in table.numbers else ''}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    head = f"<tr>{cells(table.columns, 'th')}</tr>"
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _samples(heading: str, samples: Sequence[Sample]) -> str:
    shown = "".join(
        f"<pre><small>{escape(one.about)}</small>{escape(one.body)}</pre>" for one in samples
    )
    return f"<details><summary>{escape(heading)}</summary>{shown}</details>"
