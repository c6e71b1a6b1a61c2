"""How the page looks: by day and by night, on a wall and on a phone.

The colours are told apart by people who do not see all of them (blue, vermilion and amber of Okabe and Ito's palette,
darkened where they are text), and nothing is said by colour alone.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f4f6f8; --card: #ffffff; --line: #dfe4ea; --text: #1a2129; --soft: #566270; --grid: #eef1f4;
  --blue: #2b83ba; --blue-soft: #a9cfe6; --dark: #12344d; --red: #c23b0a; --red-soft: #fdeee7; --amber: #b57700;
  --kept: #00684a; --kept-soft: #e3f4ed; --unsure: #7a5200; --unsure-soft: #fdf3dc;
  --broken: #a62b05; --broken-soft: #fdeae2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1318; --card: #171e26; --line: #2b3540; --text: #e8edf2; --soft: #9fadba; --grid: #212a33;
    --blue: #4ba3dc; --blue-soft: #27506e; --dark: #d7ecfa; --red: #ff8658; --red-soft: #3a1d12; --amber: #f0b23e;
    --kept: #5fd6a8; --kept-soft: #10291f; --unsure: #f2c14e; --unsure-soft: #2c2410;
    --broken: #ff9670; --broken-soft: #351a10;
  }
}
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }
main { max-width: 1160px; margin: 0 auto; padding: 28px 20px 48px; display: grid; gap: 18px;
  grid-template-columns: repeat(2, minmax(0, 1fr)) }
header, .wide, footer { grid-column: 1 / -1 }
small { font-size: 13px; font-weight: 400; color: var(--soft) }
header p { margin: 0; color: var(--soft) }
.facts { display: flex; flex-wrap: wrap; gap: 2px 22px; font-size: 14px }
header .over { font-size: 12px; font-weight: 600; letter-spacing: .08em; text-transform: uppercase }
h1 { margin: 2px 0 6px; font-size: 30px; line-height: 1.2; letter-spacing: -.01em; overflow-wrap: anywhere }
h2 { margin: 0 0 14px; font-size: 18px; display: flex; gap: 4px 12px; align-items: baseline; flex-wrap: wrap }
h3 { margin: 0 0 4px; font-size: 15px; display: flex; gap: 10px; align-items: baseline }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 20px 22px; min-width: 0 }
.none { color: var(--soft); margin: 0 0 10px; font-size: 14px }

.verdict { display: flex; gap: 18px; align-items: center; padding: 22px 24px; border-radius: 14px; border: 1px solid }
.verdict svg { flex: none; width: 52px; height: 52px }
.verdict circle { fill: currentColor }
.verdict path { fill: none; stroke: var(--card); stroke-width: 5; stroke-linecap: round; stroke-linejoin: round }
.verdict strong { display: block; font-size: 25px; line-height: 1.25; letter-spacing: -.01em }
.verdict ul { list-style: none; margin: 6px 0 0; padding: 0; color: var(--text); overflow-wrap: anywhere }
.kept { color: var(--kept); background: var(--kept-soft) }
.unsure { color: var(--unsure); background: var(--unsure-soft) }
.broken { color: var(--broken); background: var(--broken-soft) }

.tiles { display: grid; grid-template-columns: repeat(8, 1fr); gap: 1px; overflow: hidden;
  background: var(--line); border: 1px solid var(--line); border-radius: 12px; margin: 0 }
.tiles div { background: var(--card); padding: 14px 16px }
.tiles dt { color: var(--soft); font-size: 13px }
.tiles dd { margin: 0; font-size: 24px; font-weight: 600; letter-spacing: -.01em; font-variant-numeric: tabular-nums }
.tiles .alarm dd { color: var(--red) }
.tiles .idle dd { color: var(--soft); font-weight: 400 }

svg { display: block }
.hit { fill: transparent }
g:hover > .hit { fill: var(--line) }
.fired { fill: var(--blue-soft) }
g:hover > .fired { fill: var(--blue) }
.dead { fill: var(--red) }
.notice { fill: var(--amber) }
path.succeeded { fill: none; stroke: var(--dark); stroke-width: 1.4; vector-effect: non-scaling-stroke;
  pointer-events: none }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 10px; font-size: 13px; color: var(--soft) }
.legend b { color: var(--text) }
.key { display: inline-block; width: 14px; height: 11px; margin-right: 7px; border-radius: 2px; vertical-align: -1px }
.key.fired { background: var(--blue-soft) }
.key.dead { background: var(--red); height: 6px; vertical-align: 2px }
.key.notice { background: var(--amber) }
.key.succeeded { height: 2px; background: var(--dark); vertical-align: 4px }
.panel { position: relative; border-bottom: 1px solid var(--line); background:
  repeating-linear-gradient(to bottom, var(--grid) 0 1px, transparent 1px 25%) }
.panel svg { width: 100%; height: 168px }
.panel.low svg { height: 92px }
.peak { margin-left: auto }
.axis { height: 22px; font-size: 12px; color: var(--soft) }
.axis > div { position: relative; height: 100% }
.axis span { position: absolute; top: 5px; padding-left: 4px; border-left: 1px solid var(--line); white-space: nowrap;
  line-height: 1.1 }
.axis .end { transform: translateX(-100%); padding: 0 4px 0 0; border: solid var(--line); border-width: 0 1px 0 0 }
.lanes { margin-top: 16px; border-top: 1px solid var(--line) }
.lane { display: grid; grid-template-columns: 190px minmax(0, 1fr) 84px; gap: 14px; align-items: center;
  border-bottom: 1px solid var(--line); padding: 3px 0 }
.lane svg { width: 100%; height: 36px }
.lane.notices svg { height: 18px }
.lane .name { display: flex; gap: 8px; align-items: center; min-width: 0 }
.lane .name b { font-weight: 500; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.lane em { flex: none; font-style: normal; font-size: 11.5px; font-weight: 600; padding: 1px 7px; border-radius: 9px;
  color: var(--broken); background: var(--broken-soft) }
.lane .total { text-align: right; font-variant-numeric: tabular-nums }
.axis.beside { padding: 0 98px 0 204px }

.stage + .stage { margin-top: 26px; padding-top: 20px; border-top: 1px solid var(--line) }
.stage .scroll { margin-top: 10px }
.stage line { stroke: var(--dark); stroke-width: 1.8; vector-effect: non-scaling-stroke }
.stage line.p90 { stroke-dasharray: 6 4 }
.stage line.p99 { stroke-dasharray: 2 3 }
.key.p50, .key.p90, .key.p99 { width: 0; height: 14px; margin-right: 8px; border-left: 2px solid var(--dark);
  border-radius: 0; vertical-align: -2px }
.key.p90 { border-left-style: dashed }
.key.p99 { border-left-style: dotted }
td.strip svg { width: 100%; min-width: 150px; height: 16px }
.track { fill: var(--grid) }
.tail { fill: var(--blue-soft) }
.most { fill: var(--blue) }
.half { fill: var(--dark) }

.scroll { overflow-x: auto; margin: 0 -22px; padding: 0 22px }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th { text-align: left; font-size: 12.5px; font-weight: 500; color: var(--soft); vertical-align: bottom;
  border-bottom: 1px solid var(--line); white-space: nowrap }
th, td { padding: 7px 14px 7px 0 }
th:last-child, td:last-child { padding-right: 0 }
td { border-bottom: 1px solid var(--grid); vertical-align: top; overflow-wrap: anywhere; min-width: 5.5em }
tbody tr:last-child td { border-bottom: 0 }
td:first-child { min-width: 9em }
td.number, th.number { text-align: right; white-space: nowrap; min-width: 0; font-variant-numeric: tabular-nums }
td.short, td.short:first-child { min-width: 0 }
td.zero { color: var(--soft); opacity: .75 }
th.strip { min-width: 210px }
td.strip { vertical-align: middle; width: 34% }
td.bar, th.bar { width: 26%; min-width: 70px }
span.bar { display: block; margin-top: 6px; height: 9px; min-width: 2px; border-radius: 2px; background: var(--blue) }
.alarming span.bar { background: var(--red) }
td b.alarm { color: var(--red); font-weight: 600 }
td .breach { color: var(--broken); font-weight: 600; white-space: nowrap }
code { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }
td code { display: block; white-space: nowrap }
td.what { min-width: 15em }
dl.promises { display: grid; grid-template-columns: auto 1fr; gap: 2px 12px; margin: 0 0 14px; font-size: 13.5px;
  color: var(--soft) }
dl.promises dt { font-weight: 600; color: var(--text) }
dl.promises dd { margin: 0 }
details { margin-top: 8px }
summary { cursor: pointer; color: var(--blue); font-size: 14px; font-weight: 500; padding: 6px 0; width: fit-content }
footer { color: var(--soft); font-size: 13px }
footer p { margin: 0 0 4px }

@media (max-width: 760px) {
  main { grid-template-columns: minmax(0, 1fr); padding: 18px 12px 32px; gap: 12px }
  h1 { font-size: 24px }
  .card { padding: 16px 14px }
  .scroll { margin: 0 -14px; padding: 0 14px }
  .verdict { padding: 16px; gap: 14px; align-items: flex-start }
  .verdict svg { width: 38px; height: 38px }
  .verdict strong { font-size: 20px }
  .tiles { grid-template-columns: repeat(4, 1fr) }
  .tiles div { padding: 9px 10px }
  .tiles dd { font-size: 17px }
  .tiles dt { font-size: 12px }
  .panel svg { height: 120px }
  .lane { grid-template-columns: minmax(0, 1fr) auto; gap: 0 10px; padding: 5px 0 }
  .lane .total { order: 1 }
  .lane svg { order: 2; grid-column: 1 / -1; height: 30px }
  .axis.beside { padding: 0 }
  .axis span:nth-child(even) { display: none }
  .stacked thead { display: none }
  .stacked tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--line) }
  .stacked tbody tr:last-child { border-bottom: 0 }
  .stacked td { display: grid; grid-template-columns: 6.5em minmax(0, 1fr); padding: 2px 0; border: 0; min-width: 0 }
  .stacked td::before { content: attr(data-label); color: var(--soft); font-size: 13px }
  .stacked td:empty { display: none }
  .stacked code { white-space: normal }
  .first .scroll { padding-left: 0 }
  .first th:first-child, .first td:first-child { position: sticky; left: 0; padding-left: 14px; max-width: 42vw;
    background: var(--card) }
}
@media print {
  body { background: none }
  .card, .verdict { break-inside: avoid }
}
"""
