// SPDX-License-Identifier: MIT
// Holds the JavaScript of report.html, which draws charts, tables and examples. The page has it after
// kChartScript (chart_script.hpp), whose functions it calls.
#pragma once

#include <string_view>

namespace looptorch::report::page {

inline constexpr std::string_view kReportScript = R"js(
fill('curves', (parent) => run.curves.forEach((curve) => charts.push(new Chart(curve, parent))));
fill('epochs', (parent) => table(parent, run.epochs.head, run.epochs.rows));
fill('time', (parent) => {
  const colors = ['#8e6bd8', '#1f6feb', '#2a9d8f', '#e9a23b', '#d1495b', '#7d8597', '#b0b7c3'];
  const total = run.time.reduce((sum, [, seconds]) => sum + seconds, 0);
  const bar = make('div', {class: 'bar'}), legend = make('div', {class: 'legend'});
  run.time.forEach(([name, seconds], i) => {
    const share = total > 0 ? 100 * seconds / total : 0;
    bar.append(make('div', {style: `width:${share}%;background:${colors[i % 7]}`, title: name}));
    const item = make('span');
    item.append(make('i', {style: `background:${colors[i % 7]}`}), `${name} ${share.toFixed(1)} % (${clock(seconds)})`);
    legend.append(item);
  });
  parent.append(bar, legend);
});
const show = {
  text({pieces, separator}) {
    const text = make('p', {class: 'said'});
    pieces.forEach(([expected, got], i) => {
      if (i) text.append(separator);
      if (got === undefined) return text.append(expected);
      if (expected) text.append(make('del', {}, expected));
      if (expected && got) text.append(' ');
      if (got) text.append(make('ins', {}, got));
    });
    return text;
  },
  picture: ({title, data, columns}) => make('img', {alt: title, src: data, style: `width:${Math.max(columns, 320)}px`}),
  sound: ({title, data}) => make('audio', {controls: '', src: data, 'aria-label': title}),
  distribution({low, high, counts}) {
    const svg = make('svg', {viewBox: `0 0 ${W} 110`}), most = Math.max(...counts, 1), wide = W / counts.length;
    counts.forEach((count, i) => svg.append(make('rect', {class: 'dot', x: i * wide, width: wide - 1,
      y: 90 - 86 * count / most, height: 86 * count / most})));
    svg.append(make('text', {x: 0, y: 106}, short(low)), make('text', {x: W, y: 106, 'text-anchor': 'end'}, short(high)));
    return svg;
  },
};
fill('examples', (parent) => run.examples.forEach(({name, step, shown}) => {
  parent.append(make('h2', {}, `Examples: ${name}`), make('p', {class: 'soft'}, `Step ${step}.`));
  const said = shown[0]?.kind === 'text' && shown.every(({kind}) => kind === 'text' || kind === 'sound');
  const cards = make('div', {class: said ? 'texts' : 'cards'}), titled = new Map();
  for (const example of shown) {
    const {kind, title} = example;
    let card = title && titled.get(title);  // a clip's sound stands beside its text
    if (card && !card.dataset.kind.split(' ').includes(kind)) card.dataset.kind += ` ${kind}`;
    else {
      card = make('div', {class: 'card example', 'data-kind': kind});
      if (title) card.append(make('h3', {}, title));
      titled.set(title, card);
      cards.append(card);
    }
    card.append(show[kind](example));
  }
  if (shown.length <= 24) return parent.append(cards);
  const fold = make('details');
  fold.append(make('summary', {}, `${shown.length} in all`), cards);
  parent.append(fold);
}));
fill('facts', (parent) => {
  table(parent, null, run.facts);
  parent.querySelectorAll('td:last-child').forEach((cell) => cell.classList.add('wide'));
});
)js";

}  // namespace looptorch::report::page
