// SPDX-License-Identifier: MIT
// The script of compare.html, which follows kChartScript (chart_script.hpp) in the page. Shows a chart for
// each metric with a curve for each run, each run's last values, and the settings that differ.
#pragma once

#include <string_view>

namespace looptorch::report::page {

inline constexpr std::string_view kCompareScript = R"js(
const heads = (name) => [name, ...runs.map((each) => each.name)];
const paint = (parent) => parent.querySelectorAll('tr:first-child th').forEach((cell, i) => {
  if (i === 0) return;
  cell.classList.add(`run${(i - 1) % 7}`);
  cell.prepend(make('i'));
});
const compare = (id, name, rows) => fill(id, (parent) => {
  if (!rows.length) return parent.append(make('p', {class: 'soft'}, 'None.'));
  table(parent, heads(name), rows);
  paint(parent);
});
fill('curves', (parent) => run.curves.forEach((curve) => charts.push(new Chart(curve, parent))));
compare('last', 'last value', run.last);
compare('differ', 'setting', run.differ);
compare('agree', 'setting', run.agree);
document.querySelectorAll('#differ td, #agree td').forEach((cell) => cell.classList.add('wide'));
)js";

}  // namespace looptorch::report::page
