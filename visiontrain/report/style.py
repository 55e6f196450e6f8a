"""How pages look: light and dark, with the system's own letters."""

from __future__ import annotations

CSS = """\
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1c1e21; --faint: #63686e; --line: #d5d8dc; --panel: #f5f6f7;
  --bar: #0072b2; --soft: #cfe3f0; --error: #b3261e; --warning: #9a6700; --good: #1a7f37;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181b; --text: #e4e6e8; --faint: #9aa0a6; --line: #3a3e43; --panel: #1f2226;
    --bar: #56b4e9; --soft: #24435a; --error: #ff8a80; --warning: #e3b341; --good: #56d364;
  }
}
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: .25rem 0; }
code { font: .85em ui-monospace, monospace; overflow-wrap: anywhere; }
q { color: var(--faint); overflow-wrap: anywhere; }
.verdict { font-weight: 600; padding: .5rem .75rem; border-left: 4px solid; background: var(--panel); }
.verdict.good { border-color: var(--good); }
.verdict.bad { border-color: var(--error); }
section { margin: .75rem 0; padding: .5rem .75rem; border-left: 4px solid var(--warning); background: var(--panel); }
section.error { border-color: var(--error); }
section ul { margin: 0; padding-left: 1.1rem; }
h3 code { color: var(--faint); font-weight: normal; }
figure { display: inline-block; margin: .4rem .6rem .4rem 0; vertical-align: top; max-width: 340px; }
figcaption { color: var(--faint); font-size: .8rem; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; }
.unreadable { display: grid; place-items: center; width: 200px; height: 120px; color: var(--faint);
  border: 1px dashed var(--line); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
tbody th, th[rowspan] { text-align: left; font-weight: normal; }
td { background: linear-gradient(var(--soft), var(--soft)) no-repeat; background-size: 0; }
.charts figure { width: 330px; }
svg { width: 100%; }
svg rect { fill: var(--bar); }
svg line { stroke: var(--line); }
svg text { fill: var(--faint); }
"""
