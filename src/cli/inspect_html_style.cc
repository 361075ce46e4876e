#include "cli/inspect_html.h"

namespace situ::cli {

// Colours are named by what they stand for; k0 to k5 are kinds of kernels, r0 to r3 regions.
const char* const kPageStyle = R"(
:root{color-scheme:light dark;--bg:#fbfaf8;--panel:#fff;--ink:#1d2329;--soft:#5a646e;--line:#dedad3;--faint:#f0ede7;
--accent:#1f5f8b;--k0:#3f73a8;--k1:#cf8a34;--k2:#4f9465;--k3:#8b6bb1;--k4:#9aa1a9;--k5:#c0392b;
--r0:#56657a;--r1:#2c8c82;--r2:#cf8a34;--r3:#b0749a}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--panel:#1b1f23;--ink:#e4e6e8;--soft:#a0a9b2;--line:#333a41;
--faint:#23282d;--accent:#7fbce8;--k0:#6b9fd4;--k1:#dfa558;--k2:#74b98a;--k3:#ae92d1;--k4:#7d868f;--k5:#e57368;
--r0:#8797ac;--r1:#4fb3a8;--r2:#dfa558;--r3:#cf97bb}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:1rem}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
main,header,footer{max-width:66rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2.5rem}
h1{font-size:1.7rem;line-height:1.2;margin:.2rem 0 .4rem;overflow-wrap:anywhere;font-weight:650;letter-spacing:-.01em}
h2{font-size:1.25rem;margin:0 0 .35rem;font-weight:650}
h3{font-size:1rem;margin:0;font-weight:650}
p{margin:.35rem 0 .75rem;max-width:46rem}
section{margin:3rem 0}
.eyebrow,.meta,.note,figcaption,small{color:var(--soft);font-size:.875rem}
.eyebrow{margin:0;letter-spacing:.06em;text-transform:uppercase;font-size:.75rem}
.lead{font-size:1.1rem;margin:1rem 0}
code{font:.85em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere;unicode-bidi:isolate}
a{color:var(--accent);text-underline-offset:.15em}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:3px}
nav ul,.plain,.legend{list-style:none;margin:0;padding:0}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:1.25rem 0}
nav a{display:inline-block;padding:.2rem 0}
.skip{position:absolute;left:-99rem}
.skip:focus{left:1rem;top:.5rem;background:var(--panel);padding:.4rem .7rem;z-index:9}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(13.5rem,1fr));gap:1px;background:var(--line);
border:1px solid var(--line);border-radius:8px;overflow:hidden;margin:1.5rem 0 0}
.tiles div{background:var(--panel);padding:.8rem 1rem}
dt{color:var(--soft);font-size:.8125rem}
.tiles dd{margin:0;font-size:1.4rem;font-weight:600;line-height:1.3}
.tiles dd small{display:block;font-weight:400;font-size:.8125rem;line-height:1.4}
.panel,.program{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:1rem;margin:1rem 0}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.8125rem;color:var(--soft);margin:.5rem 0}
.legend li,.key{white-space:nowrap}
.legend li::before,.key::before{content:"";display:inline-block;width:.7rem;height:.7rem;border-radius:2px;
margin-right:.4rem;background:var(--c)}
.bar{display:flex;gap:2px;height:1.75rem;margin:.75rem 0 .4rem}
.bar span{background:var(--c);min-width:3px;flex-basis:0;border-radius:2px}
.bar.thin{height:.6rem;margin:.25rem 0 .1rem}
.k0{--c:var(--k0);fill:var(--k0)}.k1{--c:var(--k1);fill:var(--k1)}.k2{--c:var(--k2);fill:var(--k2)}
.k3{--c:var(--k3);fill:var(--k3)}.k4{--c:var(--k4);fill:var(--k4)}.k5{--c:var(--k5);fill:var(--k5)}
.r0{--c:var(--r0)}.r1{--c:var(--r1)}.r2{--c:var(--r2)}.r3{--c:var(--r3)}
.h0{--c:#5d9bb0}.h1{--c:#7db3a4}.h2{--c:var(--r1)}.h3{--c:#a9b86b}.h4{--c:var(--r0)}.h5{--c:var(--k4)}.h6{--c:var(--k5)}
.entries{list-style:none;margin:.5rem 0 0;padding:0}
.entries li{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:0 1rem;padding:.3rem 0;
border-top:1px solid var(--faint)}
.entries li>small{grid-column:1/-1}
.entries .bar{grid-column:1/-1;background:var(--faint);border-radius:2px}
.bytes{white-space:nowrap;text-align:right}
.head{display:flex;flex-wrap:wrap;justify-content:space-between;gap:.1rem 1rem;align-items:baseline}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.4rem .6rem .4rem 0;border-top:1px solid var(--faint)}
thead th{border:0;color:var(--soft);font-weight:500;font-size:.8125rem}
tbody th{font-weight:500}
tbody th small{display:block;font-weight:400}
.n{text-align:right;white-space:nowrap;padding-right:0;padding-left:.6rem}
tr:target,li:target{background:var(--faint)}
figure{margin:.75rem 0}
.plot{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.2rem .5rem;font-size:.75rem;color:var(--soft)}
.plot .y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;white-space:nowrap}
.plot .x{grid-column:2;display:flex;justify-content:space-between}
.plot svg,.zoom{display:block;width:100%;background:var(--faint);border-radius:3px}
.plot svg{height:15rem}
rect:target{stroke:var(--ink);stroke-width:3px;vector-effect:non-scaling-stroke}
.window{fill:none;stroke:var(--ink);stroke-width:1.5px;stroke-dasharray:4 3;vector-effect:non-scaling-stroke}
svg.strip{display:block;width:100%;height:2rem;border-radius:3px;margin:.6rem 0 .2rem;background:var(--faint)}
.scroll{overflow-x:auto}
.zoom{position:relative;height:17rem;min-width:30rem;overflow:hidden}
.zoom>span{position:absolute;overflow:hidden;background:var(--c);border:1px solid var(--panel);border-width:1px 1px 0 0;
border-radius:3px;color:#10151a;font-size:.6875rem;
line-height:1.25;padding:1px 3px;overflow-wrap:anywhere}
@media (prefers-color-scheme:light){.zoom>.k0,.zoom>.k3,.zoom>.k5{color:#fff}}
.zoom>span:hover,.zoom>span:focus{z-index:2;overflow:visible;height:auto!important;width:auto!important;
max-width:20rem;min-height:1.4rem;background:var(--panel);color:var(--ink);outline:2px solid var(--accent);
outline-offset:-1px}
.zoom>span.late:hover,.zoom>span.late:focus{left:auto!important;right:0}
.zoom>span.high:hover,.zoom>span.high:focus{bottom:auto!important;top:0}
.zoom>span:focus{outline-offset:-2px}
.ticks{display:flex;justify-content:space-between;min-width:30rem;font-size:.75rem;color:var(--soft)}
.zoom>span em{font-style:normal;display:none}
.zoom>span:hover em,.zoom>span:focus em{display:block}
details{margin:.6rem 0 0}
summary{cursor:pointer;padding:.25rem 0;font-weight:500;font-size:.9rem}
.calls{list-style:none;margin:.4rem 0 0;padding:0;font-size:.85rem}
.calls li{display:grid;grid-template-columns:3.2rem minmax(0,1fr) minmax(0,1fr);gap:0 .75rem;padding:.22rem 0;
border-top:1px solid var(--faint);overflow-wrap:anywhere}
.calls .key{white-space:normal}
.calls small{grid-column:2/-1}
.calls .i{color:var(--soft);text-align:right}
.flow{list-style:none;margin:0;padding:0}
.flow li{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,5fr) minmax(0,3fr) 6rem;gap:0 1rem;padding:.45rem 0;
border-top:1px solid var(--line);align-items:baseline;overflow-wrap:anywhere}
.flow li>span::before{color:var(--soft);margin-right:.45rem}
.flow .to::before{content:"\2192"}
.flow li>small{grid-column:1/-1}
.chips code{display:inline-block;background:var(--faint);border-radius:4px;padding:.1rem .4rem;margin-right:.35rem}
.words dt{font-weight:600;color:var(--ink);margin-top:.5rem}
.words dd{margin:0;color:var(--soft);max-width:46rem}
footer{border-top:1px solid var(--line);padding-top:1rem;padding-bottom:3rem}
.flow li:first-child,.entries li:first-child{border-top:0}
@media (max-width:40rem){.hows thead,.hows tbody th{display:block}.hows thead th.n{display:none}
.hows tr{display:block;padding:.4rem 0;border-top:1px solid var(--faint)}.hows tbody th,.hows td{border:0;padding:0}
.hows td{display:inline-block;margin-right:1rem}.hows td::before{content:attr(data-program) " ";color:var(--soft)}
header{padding-top:1.5rem}section{margin:2.25rem 0}h1{font-size:1.3rem}
main,header,footer{padding-left:1rem;padding-right:1rem}.panel,.program{padding:.8rem}.plot svg{height:11rem}
.calls li{grid-template-columns:2.4rem minmax(0,1fr)}.calls .w{grid-column:2}
.flow li{grid-template-columns:minmax(0,1fr) auto}.flow .to{grid-column:1}.flow .bytes{grid-column:2;grid-row:1}}
@media (forced-colors:active){.bar span,.key::before,.legend li::before,.zoom>span{forced-color-adjust:none}}
)";

}  // namespace situ::cli
