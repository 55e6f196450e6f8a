"""How the page of a run looks, beyond what all pages share."""

from __future__ import annotations

# Source: Okabe & Ito 2008, "Color Universal Design", brighter on dark pages; dashes tell what colors may not.
RUN_CSS = (
    """\
:root { --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9; --c6: #1c1e21; }
@media (prefers-color-scheme: dark) {
  :root { --c0: #56b4e9; --c1: #f0803c; --c2: #2fc79b; --c3: #e0a3c4; --c4: #f0b73c; --c5: #7f9cf5; --c6: #e4e6e8; }
}
* { box-sizing: border-box; }
body { overflow-wrap: anywhere; }
table { overflow-wrap: normal; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0; }
a { color: var(--bar); }
:focus-visible { outline: 3px solid var(--c1); outline-offset: 2px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .5rem; margin: 1rem 0; }
.tiles div { background: var(--panel); padding: .5rem .75rem; overflow-wrap: anywhere; }
.tiles dt { color: var(--faint); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.tiles dd small { display: block; font-size: .75rem; color: var(--faint); }
.tiles dl, dl.tiles { padding: 0; }
.warnings { border-left: 4px solid var(--warning); background: var(--panel); padding: .5rem .75rem .5rem 2rem; }
.charts { display: flex; flex-wrap: wrap; gap: .5rem 1rem; }
.charts figure.chart { width: 340px; max-width: 100%; margin: 0; }
.chart path { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart path.faint { stroke: var(--faint); stroke-width: 1; opacity: .45; }
.chart path.faint:hover { stroke: var(--c1); stroke-width: 3; opacity: 1; }
.chart path.c1, .chart path.c4 { stroke-dasharray: 9 4; }
.chart path.c2, .chart path.c5 { stroke-dasharray: 9 3 2 3; }
.chart path.c3, .chart path.dashed { stroke-dasharray: 2 3; }
.chart circle { stroke: none; }
.chart path.mean { stroke: var(--text); stroke-width: 3; }
.chart line.mark { stroke: var(--text); stroke-dasharray: 2 3; }
.chart text, .matrix text { font-size: 11px; text-anchor: middle; }
.chart text.end, .matrix text.end { text-anchor: end; }
.legend { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0 .9rem; font-size: .8rem; }
.legend li { overflow-wrap: anywhere; }
.legend path { fill: none; stroke-width: 2; }
.legend svg { width: 24px; height: 8px; margin-right: .3rem; vertical-align: middle; }
.none { color: var(--faint); }
"""
    + "".join(
        f".c{place} {{ stroke: var(--c{place}); }} circle.c{place} {{ fill: var(--c{place}); }}\n" for place in range(7)
    )
    + """\
thead th { border-bottom: 2px solid var(--line); white-space: nowrap; }
thead th:first-child { text-align: left; }
tbody th { max-width: 22rem; min-width: 5rem; overflow-wrap: break-word; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: .35rem 0; cursor: pointer; }
th button::after { content: " ↕"; color: var(--faint); }
th[aria-sort="ascending"] button::after { content: " ↑"; color: var(--text); }
th[aria-sort="descending"] button::after { content: " ↓"; color: var(--text); }
table.scores td { min-width: 4.5rem; }
.matrix svg { display: block; width: auto; max-width: none; }
.matrix rect { fill: var(--bar); }
.matrix rect.frame { fill: none; stroke: var(--line); }
.matrix text { fill: var(--text); }
.matrix text.on { fill: var(--page); }
.controls { position: sticky; top: 0; z-index: 1; background: var(--page); padding: .5rem 0; display: flex;
  flex-wrap: wrap; align-items: center; gap: .25rem 1.25rem; border-bottom: 1px solid var(--line); }
.controls input[type="range"] { width: min(16rem, 60vw); vertical-align: middle; }
.controls output { display: inline-block; min-width: 3rem; font-variant-numeric: tabular-nums; }
.controls label { white-space: nowrap; padding: .25rem 0; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.gallery figure { margin: .5rem 0; max-width: 480px; width: 100%; }
.canvas { position: relative; }
.canvas img { width: 100%; }
.canvas svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.canvas rect { fill: none; vector-effect: non-scaling-stroke; }
.canvas rect.halo { stroke: #000; stroke-width: 4; opacity: .5; }
.canvas text { paint-order: stroke; stroke: #000; stroke-width: .25em; stroke-linejoin: round; fill: #fff; }
.canvas .truth rect.edge { stroke: #f0e442; stroke-width: 2; stroke-dasharray: 7 4; }
.canvas .found rect.edge { stroke: #56b4e9; stroke-width: 2; }
.canvas .truth.seen rect.edge { stroke: #fff; stroke-width: 1; stroke-dasharray: 2 3; }
.canvas .found.false rect.edge { stroke: #ff7f2a; }
.canvas .found.wrong rect.edge { stroke: #ff9fe0; stroke-dasharray: 10 3 2 3; }
.canvas .found.passed rect.edge, .canvas .ignored rect.edge { stroke: #bbb; stroke-width: 1; }
.canvas .seen text, .canvas .hit text, .canvas .passed text, .canvas .ignored text { display: none; }
.hide-missed .missed, .hide-false .false, .hide-wrong .wrong, .hide-hit .hit, .hide-seen .seen { display: none; }
.swatch { display: inline-block; width: 1.6em; border-top: 3px solid; vertical-align: middle; margin: 0 .2em; }
.swatch.missed { border-color: #c9b400; border-top-style: dashed; }
.swatch.false { border-color: #e8641b; }
.swatch.wrong { border-color: #d95cb4; border-top-style: double; }
.swatch.hit { border-color: #56b4e9; }
.swatch.seen { border-color: var(--faint); border-top: 2px dotted; }
.probs { margin: .25rem 0 0; padding: 0; list-style: none; font-size: .85rem; }
.probs li { background: linear-gradient(var(--soft), var(--soft)) no-repeat; padding: 0 .4rem; display: flex;
  justify-content: space-between; gap: 1rem; }
.probs li.right { font-weight: 600; }
.probs span { overflow-wrap: anywhere; }
details { margin: .5rem 0; }
summary { cursor: pointer; padding: .35rem 0; }
.pictures img { margin: .5rem 0; }
td.text { text-align: left; min-width: 8rem; overflow-wrap: anywhere; }
.tiles dd.word { font-size: .95rem; }
@media (max-width: 40rem) { body { margin: 1rem auto; } th, td { padding: .15rem .4rem; } }
"""
)
