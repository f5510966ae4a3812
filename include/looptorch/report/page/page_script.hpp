// SPDX-License-Identifier: MIT
// The script of report.html: draws curves as SVG, shows values under the pointer, and zooms all curves to the
// steps that are chosen in one of them. It loads nothing.
#pragma once

#include <string_view>

namespace looptorch::report::page {

inline constexpr std::string_view kScript = R"js(
'use strict';
const run = JSON.parse(document.getElementById('run').textContent);
const make = (name, attributes = {}, text = '') => {
  const svg = ['svg', 'path', 'line', 'text', 'rect', 'circle', 'g'].includes(name);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== '') element.textContent = text;
  return element;
};
const short = (value) => {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (value !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return String(+value.toPrecision(4));
};
const clock = (seconds) => {
  const s = Math.round(seconds), pad = (n) => String(n).padStart(2, '0');
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
};
const ticks = (low, high, count) => {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const all = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9 && all.length < 20; ++n) all.push(n * step);
  return all;
};

const W = 380, H = 190, L = 52, R = 10, T = 8, B = 22;
const charts = [];
let shown = null;  // the steps that are zoomed to

class Chart {
  constructor(curve, parent) {
    this.points = curve.points.map(([step, value]) => [step, Number(value)]);
    const card = make('div', {class: 'card', 'data-name': curve.name});
    const head = make('h3', {}, curve.name);
    this.value = make('span');
    head.append(this.value);
    this.svg = make('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': curve.name});
    card.append(head, this.svg);
    parent.append(card);
    this.svg.addEventListener('pointermove', (event) => this.move(event));
    this.svg.addEventListener('pointerleave', () => charts.forEach((chart) => chart.point(null)));
    this.svg.addEventListener('pointerdown', (event) => { this.from = this.step(event); });
    this.svg.addEventListener('pointerup', (event) => this.choose(event));
    this.svg.addEventListener('dblclick', () => { shown = null; charts.forEach((chart) => chart.draw()); });
    this.draw();
  }
  draw() {
    const inside = this.points.filter(([step]) => !shown || (step >= shown[0] && step <= shown[1]));
    const steps = inside.map(([step]) => step), finite = inside.filter(([, value]) => Number.isFinite(value)).map(([, value]) => value);
    this.inside = inside;
    const low = finite.reduce((a, b) => Math.min(a, b), Infinity), high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
    const room = finite.length ? (high - low || Math.abs(high) || 1) * 0.06 : 0;
    [this.y0, this.y1] = finite.length ? [low - room, high + room] : [0, 1];
    [this.x0, this.x1] = shown || (steps.length ? [steps[0], steps[steps.length - 1]] : [0, 1]);
    if (this.x1 <= this.x0) { this.x0 -= 0.5; this.x1 += 0.5; }
    this.svg.replaceChildren();
    for (const y of ticks(this.y0, this.y1, 4)) {
      this.svg.append(make('line', {class: 'grid', x1: L, x2: W - R, y1: this.y(y), y2: this.y(y)}));
      this.svg.append(make('text', {x: L - 6, y: this.y(y) + 4, 'text-anchor': 'end'}, short(y)));
    }
    for (const x of ticks(this.x0, this.x1, 5).filter(Number.isInteger))
      this.svg.append(make('text', {x: this.x(x), y: H - 6, 'text-anchor': 'middle'}, String(x)));
    let path = '', pen = false, drawn = 0;
    for (const [step, value] of inside) {
      if (Number.isFinite(value)) {
        path += `${pen ? 'L' : 'M'}${this.x(step).toFixed(1)} ${this.y(value).toFixed(1)}`;
        pen = true;
      } else {  // a cross where there is no number
        const x = this.x(step), y = value === -Infinity ? H - B - 6 : T + 6;
        this.svg.append(make('path', {class: 'bad', d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8`}));
        pen = false;
      }
      ++drawn;
    }
    this.svg.append(make('path', {class: 'curve', d: path}));
    if (finite.length === 1 || inside.length <= 60)
      for (const [step, value] of inside)
        if (Number.isFinite(value)) this.svg.append(make('circle', {class: 'dot', r: 2, cx: this.x(step), cy: this.y(value)}));
    this.svg.dataset.drawn = drawn;
    this.cursor = make('line', {class: 'cursor', y1: T, y2: H - B, visibility: 'hidden'});
    this.chosen = make('rect', {class: 'chosen', y: T, height: H - B - T, visibility: 'hidden'});
    this.svg.append(this.cursor, this.chosen);
    this.point(null);
  }
  x(step) { return L + (step - this.x0) / (this.x1 - this.x0) * (W - L - R); }
  y(value) { return T + (this.y1 - value) / (this.y1 - this.y0) * (H - T - B); }
  step(event) {
    const box = this.svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * W - L) / (W - L - R);
    return this.x0 + Math.min(1, Math.max(0, share)) * (this.x1 - this.x0);
  }
  move(event) {
    const step = this.step(event);
    charts.forEach((chart) => chart.point(step));
    if (this.from === undefined) return;
    const [a, b] = [this.from, step].sort((p, q) => p - q);
    this.chosen.setAttribute('visibility', 'visible');
    this.chosen.setAttribute('x', this.x(a));
    this.chosen.setAttribute('width', this.x(b) - this.x(a));
  }
  choose(event) {
    const from = this.from, to = this.step(event);
    this.from = undefined;
    if (from === undefined || Math.abs(this.x(from) - this.x(to)) < 8) return;
    shown = [from, to].sort((p, q) => p - q);
    charts.forEach((chart) => chart.draw());
  }
  point(step) {
    const near = step === null || !this.inside.length ? null
      : this.inside.reduce((best, each) => Math.abs(each[0] - step) < Math.abs(best[0] - step) ? each : best);
    this.cursor.setAttribute('visibility', near ? 'visible' : 'hidden');
    if (near) for (const end of ['x1', 'x2']) this.cursor.setAttribute(end, this.x(near[0]));
    const last = near || this.points[this.points.length - 1];
    this.value.textContent = last ? `${short(last[1])} at ${last[0]}` : '';
  }
}

const fill = (id, build) => build(document.getElementById(id));
fill('curves', (parent) => run.curves.forEach((curve) => charts.push(new Chart(curve, parent))));
const table = (parent, head, rows) => {
  const body = make('table');
  const line = (kind, cells) => {
    const row = make('tr');
    cells.forEach((cell) => row.append(make(kind, {}, typeof cell === 'number' ? short(cell) : cell ?? '')));
    body.append(row);
  };
  if (head) line('th', head);
  rows.forEach((row) => line('td', row));
  parent.append(body);
};
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
fill('facts', (parent) => {
  table(parent, null, run.facts);
  parent.querySelectorAll('td:last-child').forEach((cell) => cell.classList.add('wide'));
});
)js";

}  // namespace looptorch::report::page
