// SPDX-License-Identifier: MIT
// Holds the style sheet of report.html and compare.html: the system's light or dark theme, one column on a
// phone.
#pragma once

#include <string_view>

namespace looptorch::report::page {

inline constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --back: #fafafa; --card: #fff; --text: #1c1e21; --soft: #666c75; --line: #dfe2e6;
  --curve: #1f6feb; --bad: #c62828; --warn: #fff4d6; }
@media (prefers-color-scheme: dark) { :root { --back: #14161a; --card: #1d2026; --text: #e6e8eb; --soft: #9aa1ab;
  --line: #343942; --curve: #6cb0ff; --bad: #ff7b72; --warn: #3a3012; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 16px; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 28px 0 8px; }
p { margin: 4px 0; }
.soft { color: var(--soft); }
.warning { background: var(--warn); border-radius: 6px; padding: 6px 10px; margin: 6px 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); gap: 12px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 10px; min-width: 0; }
.card h3 { font-size: .9rem; margin: 0; display: flex; justify-content: space-between; gap: 8px; overflow-wrap: anywhere; }
.card h3 span { color: var(--soft); font-weight: normal; white-space: nowrap; }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; user-select: none; }
svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); }
.curve { fill: none; stroke: var(--curve); stroke-width: 1.6; stroke-linejoin: round; }
.dot { fill: var(--curve); }
.run0 { --curve: #1f6feb; } .run1 { --curve: #d1495b; } .run2 { --curve: #2a9d8f; } .run3 { --curve: #c77d0a; }
.run4 { --curve: #8e6bd8; } .run5 { --curve: #5a7d2a; } .run6 { --curve: #6b7280; }
.dashed .curve { stroke-dasharray: 6 3; }
.bad { stroke: var(--bad); stroke-width: 2; }
[class*=" run"] .bad { stroke: var(--curve); }
.cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
.chosen { fill: var(--curve); opacity: .15; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.wide { white-space: normal; overflow-wrap: anywhere; text-align: left; }
.bar { display: flex; height: 22px; border-radius: 6px; overflow: hidden; margin: 8px 0; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; }
.legend i, th i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.legend [class^=run] i, th i { background: var(--curve); }
#differ th, #agree th { text-align: left; }
#differ td, #agree td { min-width: 7.5em; }
#differ td:first-child, #agree td:first-child { min-width: 0; overflow-wrap: normal; }
.small { font-size: .8rem; overflow-wrap: anywhere; }
.small span span { color: var(--soft); }
.texts { display: grid; gap: 8px; }
.example img { max-width: 100%; height: auto; image-rendering: pixelated; border-radius: 4px; margin-top: 4px; }
.example audio { width: 100%; margin-top: 4px; }
.said { overflow-wrap: anywhere; }
del { color: var(--bad); }
ins { text-decoration: none; font-weight: 600; background: var(--warn); border-radius: 3px; padding: 0 3px; }
summary { cursor: pointer; margin-top: 16px; }
)css";

}  // namespace looptorch::report::page
