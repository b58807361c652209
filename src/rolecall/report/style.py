"""The style sheet of the page: system fonts, eight colours for roles or runs, light and dark, narrow and wide."""

CSS = """
:root{color-scheme:light dark;--paper:#fbfbf9;--card:#fff;--ink:#1c1d1f;--soft:#5d6169;--faint:#8b9098;--rule:#e4e4df;
--grid:#ebebe7;--wash:#f3f3ef;--good:#12724a;--bad:#b3261e;--look:#8d5b00;--good-wash:#e6f3ec;--bad-wash:#fbeae8;
--look-wash:#faf1dd;--c0:#2a62c4;--c1:#ad5200;--c2:#0b7d68;--c3:#a03491;--c4:#7a6400;--c5:#b8374b;--c6:#5a4fc0;
--c7:#51646f}
@media (prefers-color-scheme:dark){:root{--paper:#141518;--card:#1b1d21;--ink:#e9e9e6;--soft:#a9adb5;--faint:#7f848d;
--rule:#2e3137;--grid:#282b30;--wash:#22252a;--good:#5fc795;--bad:#f28b82;--look:#e3b34d;
--good-wash:#172c22;--bad-wash:#38201f;--look-wash:#322811;--c0:#80abf5;--c1:#f0a263;--c2:#52c6ab;--c3:#de8fd3;
--c4:#d0b64c;--c5:#f18d99;--c6:#aaa2f4;--c7:#a6b5bf}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:56px}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
main,header.top>div{max-width:1240px;margin:0 auto;padding:0 24px}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}
.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}.ink{color:var(--ink)}.faint{color:var(--faint)}
a{color:inherit;text-decoration-color:var(--faint);text-underline-offset:3px}
h1,h2,h3,h4{line-height:1.25;margin:0;font-weight:640;letter-spacing:-.01em}
h1{font-size:22px}h2{font-size:20px;margin:56px 0 6px}h3{font-size:16px;margin:28px 0 8px}h4{font-size:14px}
h2+p{margin:0 0 18px;color:var(--soft);max-width:72ch}
small{font-size:12px;color:var(--soft);font-weight:400}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:12.5px}
nav{position:sticky;top:0;z-index:3;background:var(--paper);border-bottom:1px solid var(--rule)}
nav ul{max-width:1240px;margin:0 auto;padding:0 16px;display:flex;gap:2px;list-style:none;overflow-x:auto;
scrollbar-width:none}
nav a{display:block;padding:11px 8px;font-size:13px;color:var(--soft);text-decoration:none;white-space:nowrap}
nav a:hover,nav a:focus{color:var(--ink)}
header.top{padding:26px 0 18px}
header .brand{font-size:12px;color:var(--soft);margin-bottom:6px}
header .facts{display:flex;flex-wrap:wrap;gap:2px 18px;margin:8px 0 0;padding:0;list-style:none;color:var(--soft);
font-size:13px}
header .facts b{color:var(--ink);font-weight:560}
.state{display:inline-block;font-size:12px;font-weight:560;border-radius:99px;padding:2px 10px;margin-left:10px;
vertical-align:3px;background:var(--wash);color:var(--soft);letter-spacing:0}
.state.open{background:var(--look-wash);color:var(--look)}
.first{display:grid;grid-template-columns:minmax(0,7fr) minmax(0,5fr);gap:32px;align-items:start;padding-top:30px}
.answer{color:var(--ink);font-size:30px;font-weight:640;letter-spacing:-.02em;line-height:1.2;margin:0 0 8px;
text-wrap:balance}
.answer .up{color:var(--good)}.answer .down{color:var(--bad)}
.lead{margin:0 0 20px;color:var(--soft);max-width:64ch}
.lead b{color:var(--ink);font-weight:600}
.panel{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:16px 18px}
.findings{margin:0;padding:0;list-style:none}
.findings li{display:grid;grid-template-columns:22px 1fr;gap:2px 10px;padding:9px 0;border-top:1px solid var(--rule)}
.findings li:first-child{border-top:0;padding-top:2px}
.findings b{font-weight:600}.findings p{margin:2px 0 0;color:var(--soft);font-size:13px;grid-column:2}
.findings.passed li{border:0;padding:3px 0;gap:0 10px}.passed b{font-weight:500;font-size:13.5px}
.passed p{margin:0;font-size:12px}.nobr{white-space:nowrap}
.badge{width:20px;height:20px;border-radius:50%;font-size:12px;font-weight:700;line-height:20px;text-align:center;
margin-top:2px;background:var(--wash);color:var(--soft)}
.bad .badge{background:var(--bad-wash);color:var(--bad)}.look .badge{background:var(--look-wash);color:var(--look)}
.fine .badge{background:var(--good-wash);color:var(--good)}
.side .chart{margin-top:16px}.side h2{margin:0 0 10px;font-size:16px}
details>summary{cursor:pointer;color:var(--soft);font-size:13px;padding:4px 0}
details>summary:hover{color:var(--ink)}
.roles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,260px),1fr));gap:14px;margin-top:26px}
.role h3{margin:0;font-size:15px;display:flex;align-items:baseline;gap:8px}
.role h3::before{content:"";width:10px;height:10px;border-radius:3px;background:currentColor;align-self:center}
.role h3 small{margin-left:auto}
.role .big{font-size:24px;font-weight:640;color:var(--ink);margin:6px 0 0;letter-spacing:-.02em}
.role .big small{font-size:12.5px;letter-spacing:0}
.role dl{display:grid;grid-template-columns:auto 1fr;gap:4px 12px;margin:10px 0 0;font-size:13px;color:var(--ink);
align-items:center}
.role dt{color:var(--soft)}.role dd{margin:0;text-align:right}
.spark{display:block;width:100%;height:38px;margin:8px 0 0;overflow:visible}.under{display:block;line-height:1.3}
.bar{display:inline-flex;align-items:center;gap:8px;justify-content:flex-end}
.bar svg{width:84px;height:8px;border-radius:4px}.bar b{color:var(--ink);font-weight:560;min-width:3.2em}
.bar .back{fill:var(--grid)}.bar .fill{fill:currentColor}
figure{margin:0;min-width:0}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:16px}
.charts.two{grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr))}
.chart{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 16px 10px;display:flex;
flex-direction:column}
.chart figcaption p{margin:2px 0 0;color:var(--soft);font-size:12.5px;line-height:1.4}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin:8px 0 0;padding:0;list-style:none;font-size:12.5px}
.legend li{display:flex;align-items:center;gap:6px;min-width:0}
.legend span{color:var(--soft);overflow-wrap:anywhere}.legend b{color:var(--ink);font-weight:560}
.frame{position:relative;padding:32px 12px 40px 40px;margin-top:auto}
.plot{display:block;width:100%;height:150px;overflow:visible}.tall .plot{height:230px}
.curve{fill:none;stroke:currentColor;stroke-width:1.8;vector-effect:non-scaling-stroke;stroke-linejoin:round;
stroke-linecap:round}
.band{fill:currentColor;opacity:.14}.d1{stroke-dasharray:6 4}.d2{stroke-dasharray:2 4}.d3{stroke-dasharray:9 3 2 3}
.dot{fill:currentColor}.hollow{fill:var(--card);stroke:currentColor;stroke-width:2}
.whisker{stroke:currentColor;stroke-width:2;opacity:.5}.whisker.before{opacity:.55}.whisker.after{stroke-width:3}
.grid{stroke:var(--grid);stroke-width:1}.grid.zero{stroke:var(--faint)}
text{fill:var(--soft);font-size:11px}.axis{fill:var(--soft)}.end{text-anchor:end}.mid{text-anchor:middle}
.cross{stroke:var(--faint);stroke-width:1}
.tip{position:absolute;pointer-events:none;z-index:2;background:var(--card);border:1px solid var(--rule);
padding:6px 9px;
border-radius:7px;font-size:12px;line-height:1.45;box-shadow:0 4px 14px #0002;white-space:nowrap;top:0}
.tip b{color:var(--ink);font-weight:600;float:right;margin-left:14px}.tip i{font-style:normal;color:var(--soft)}
.chart:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
.forest figcaption{color:var(--soft);font-size:13px}
.forest-key{display:flex;gap:18px;font-size:12.5px;color:var(--soft);margin:4px 0 6px}
.forest-key span{display:flex;gap:6px;align-items:center}.forest-key .hollow{fill:var(--paper)}
.forest-row{display:grid;grid-template-columns:minmax(104px,150px) minmax(90px,1fr) auto;gap:4px 16px;
align-items:center;border-top:1px solid var(--rule);padding:3px 0}
.forest-row .name{line-height:1.25}.forest-row .name small{display:block}
.forest-row .name span{color:var(--ink);overflow-wrap:anywhere}.forest-row.strong .name span{font-weight:640}
.forest-row:not(.ink) .name span{border-left:3px solid currentColor;padding-left:8px;display:block;
border-color:inherit}
.forest-row.c0 .name{border-color:var(--c0)}.forest-row.c1 .name{border-color:var(--c1)}
.forest-row.c2 .name{border-color:var(--c2)}.forest-row.c3 .name{border-color:var(--c3)}
.forest-row.c4 .name{border-color:var(--c4)}.forest-row.c5 .name{border-color:var(--c5)}
.forest-row.c6 .name{border-color:var(--c6)}.forest-row.c7 .name{border-color:var(--c7)}
.track{padding:0 8px;min-width:0}.track svg{display:block;width:100%;height:36px;overflow:visible}
.track .hollow{fill:var(--paper)}
.figures{display:grid;grid-template-columns:76px 76px 50px;gap:0 8px;align-items:center;line-height:1.3;
color:var(--ink);font-size:13px}
.figures .was{color:var(--soft)}.figures .now{font-weight:600}.figures small{font-size:11px;display:block;
white-space:nowrap}
.change{font-weight:600;text-align:right;color:var(--soft)}.change.up{color:var(--good)}.change.down{color:var(--bad)}
.scale{border-top:0;padding:0}.scale .track svg{height:18px}.scale .figures{display:block;width:218px}
.table{overflow-x:auto;border:1px solid var(--rule);border-radius:10px;background:var(--card);margin:10px 0}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{padding:6px 12px;text-align:left;vertical-align:top;border-top:1px solid var(--rule)}
thead th{border-top:0;color:var(--soft);font-weight:560;white-space:nowrap}
tbody th{font-weight:500}td.n,th.n{text-align:right;white-space:nowrap}td small{white-space:nowrap}
tr.group th{background:var(--wash);color:var(--soft);font-weight:560}
td.differs{background:var(--look-wash)}td code,th code{overflow-wrap:anywhere;display:inline-block;min-width:8.5em}
.pair{display:grid;align-items:start;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:14px;
margin:10px 0 26px}
.episode{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 16px;min-width:0}
.episode>header{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline;font-size:13px;color:var(--soft);
padding-bottom:8px}
.tag{font-size:12px;font-weight:600;border-radius:99px;padding:1px 9px;background:var(--wash);color:var(--soft);
white-space:nowrap}
.tag.won{background:var(--good-wash);color:var(--good)}.tag.lost{background:var(--bad-wash);color:var(--bad)}
.tag.odd{background:var(--look-wash);color:var(--look)}
.turns{list-style:none;margin:0;padding:0}
.turn{border-left:3px solid currentColor;padding:2px 0 2px 12px;margin:12px 0 0}
.turn>*{color:var(--ink)}.turn>.who{display:flex;flex-wrap:wrap;gap:2px 8px;align-items:baseline;font-size:13px}
.turn .who b{font-weight:640}.turn .who small{margin-left:auto}
pre{margin:4px 0;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;max-height:320px;overflow:auto;
background:var(--wash);border-radius:6px;padding:7px 10px}
pre.prompt{color:var(--soft);background:none;border-left:2px solid var(--rule);border-radius:0;padding:2px 10px}
.speaker{font-size:11.5px;color:var(--soft)}
.pay{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:12.5px;color:var(--soft);align-items:center}
.pay b{color:var(--ink);font-weight:600}.adv{display:inline-flex;gap:7px;align-items:center}
.adv svg{width:72px;height:9px}.adv .up{fill:var(--good)}.adv .down{fill:var(--bad)}.adv .mid{stroke:var(--faint)}
.outcomes{display:flex;height:14px;border-radius:7px;overflow:hidden;background:var(--grid);margin:8px 0}
.outcomes span{display:block;height:100%}
.gone{color:var(--soft);font-size:13.5px}
footer{margin:60px 0 40px;color:var(--soft);font-size:12.5px;border-top:1px solid var(--rule);padding-top:14px}
@media (max-width:960px){.first{grid-template-columns:minmax(0,1fr);gap:24px}}
@media (max-width:720px){main,header.top>div{padding:0 16px}nav ul{padding:0 8px}.answer{font-size:24px}
h2{margin-top:44px}.forest-row{grid-template-columns:minmax(0,1fr);gap:0;padding:8px 0}
.figures{grid-template-columns:1fr 1fr auto}.scale .figures{width:auto}.scale{padding:0}.chart{padding:12px 12px 8px}}
@media print{nav{display:none}.chart,.episode,.panel{break-inside:avoid}}
"""
