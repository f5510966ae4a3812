// SPDX-License-Identifier: MIT
// Holds the JavaScript with which report.html and compare.html draw charts: curves as SVG, one or several in
// a chart, with values under the pointer. Selecting a range of steps in one chart zooms all charts to it. The
// script loads no other file.
#pragma once

#include <string_view>

namespace looptorch::report::page {

inline constexpr std::string_view kChartScript = R"js(
'use strict';
const run = JSON.parse(document.getElementById('run').textContent);
const runs = run.runs ?? [];
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
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.75);
  const all = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9 && all.length < 20; ++n) all.push(n * step);
  return all;
};

const W = 380, H = 190, L = 52, R = 10, T = 8, B = 22;
const charts = [];
let shown = null;  // the steps that are zoomed to

class Chart {
  constructor(curve, parent) {
    const series = curve.series ?? [{points: curve.points}];
    this.series = series.map(({run, points}) => ({run, points: points.map(([step, value]) => [step, Number(value)])}));
    const card = make('div', {class: 'card', 'data-name': curve.name});
    const head = make('h3', {}, curve.name);
    this.svg = make('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': curve.name});
    card.append(head, this.svg);
    const legend = make('div', {class: 'legend small'});
    for (const each of this.series) {
      each.value = make('span');
      if (each.run === undefined) {
        head.append(each.value);
      } else {
        const item = make('span', {class: `run${each.run % 7}`}, `${runs[each.run].name} `);
        item.prepend(make('i'));
        item.append(each.value);
        legend.append(item);
      }
    }
    if (legend.childElementCount) card.append(legend);
    parent.append(card);
    this.svg.addEventListener('pointermove', (event) => this.move(event));
    this.svg.addEventListener('pointerleave', () => charts.forEach((chart) => chart.point(null)));
    this.svg.addEventListener('pointerdown', (event) => { this.from = this.step(event); });
    this.svg.addEventListener('pointerup', (event) => this.choose(event));
    this.svg.addEventListener('dblclick', () => { shown = null; charts.forEach((chart) => chart.draw()); });
    this.draw();
  }
  draw() {
    const inside = ([step]) => !shown || (step >= shown[0] && step <= shown[1]);
    for (const each of this.series) each.inside = each.points.filter(inside);
    let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
    for (const {inside} of this.series)
      for (const [step, value] of inside) {
        [first, last] = [Math.min(first, step), Math.max(last, step)];
        if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
      }
    const room = low <= high ? (high - low || Math.abs(high) || 1) * 0.06 : 0;
    [this.y0, this.y1] = low <= high ? [low - room, high + room] : [0, 1];
    [this.x0, this.x1] = shown || (first <= last ? [first, last] : [0, 1]);
    if (this.x1 <= this.x0) { this.x0 -= 0.5; this.x1 += 0.5; }
    this.svg.replaceChildren();
    for (const y of ticks(this.y0, this.y1, 4)) {
      this.svg.append(make('line', {class: 'grid', x1: L, x2: W - R, y1: this.y(y), y2: this.y(y)}));
      this.svg.append(make('text', {x: L - 6, y: this.y(y) + 4, 'text-anchor': 'end'}, short(y)));
    }
    for (const x of ticks(this.x0, this.x1, 5).filter(Number.isInteger))
      this.svg.append(make('text', {x: this.x(x), y: H - 6, 'text-anchor': 'middle'}, String(x)));
    this.svg.dataset.drawn = this.series.reduce((sum, each) => sum + this.drawSeries(each), 0);
    this.cursor = make('line', {class: 'cursor', y1: T, y2: H - B, visibility: 'hidden'});
    this.chosen = make('rect', {class: 'chosen', y: T, height: H - B - T, visibility: 'hidden'});
    this.svg.append(this.cursor, this.chosen);
    this.point(null);
  }
  drawSeries({run, inside}) {  // returns how many points it has drawn
    const group = make('g', run === undefined ? {class: 'series'} : {class: `series run${run % 7}${run >= 7 ? ' dashed' : ''}`});
    const dots = inside.length <= 60;
    let path = '', pen = false, drawn = 0;
    for (const [step, value] of inside) {
      if (Number.isFinite(value)) {
        path += `${pen ? 'L' : 'M'}${this.x(step).toFixed(1)} ${this.y(value).toFixed(1)}`;
        pen = true;
        if (dots) group.append(make('circle', {class: 'dot', r: 2, cx: this.x(step), cy: this.y(value)}));
      } else {  // a cross where there is no number
        const x = this.x(step), y = value === -Infinity ? H - B - 6 : T + 6;
        group.append(make('path', {class: 'bad', d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8`}));
        pen = false;
      }
      ++drawn;
    }
    group.prepend(make('path', {class: 'curve', d: path}));
    group.dataset.drawn = drawn;
    this.svg.append(group);
    return drawn;
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
    let cursor = null;
    for (const {points, inside, value} of this.series) {
      const near = step === null || !inside.length ? null
        : inside.reduce((best, each) => Math.abs(each[0] - step) < Math.abs(best[0] - step) ? each : best);
      if (near && (cursor === null || Math.abs(near[0] - step) < Math.abs(cursor - step))) cursor = near[0];
      const last = near || points[points.length - 1];
      value.textContent = last ? `${short(last[1])} at ${last[0]}` : '';
    }
    this.cursor.setAttribute('visibility', cursor === null ? 'hidden' : 'visible');
    if (cursor !== null) for (const end of ['x1', 'x2']) this.cursor.setAttribute(end, this.x(cursor));
  }
}
const fill = (id, build) => build(document.getElementById(id));
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
)js";

}  // namespace looptorch::report::page
