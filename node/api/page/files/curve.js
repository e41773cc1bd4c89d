// The loss curves: training as a line within a band from the least to the greatest, held-out as
// dots that are joined. The node keeps them thinned out; newer steps come one by one.

import { at, el, shape, tell } from './dom.js';
import { count, loss } from './words.js';

const height = 260;
const edge = { left: 48, right: 12, top: 10, bottom: 26 };
// mostNew steps are kept beside the node's points before they are asked for again.
export const mostNew = 512;

// pointed is the step that the pointer is at, null where it is not on the curve.
let pointed = null;

// Curves are the losses as far as this page knows them.
export class Curves {
  constructor(history) {
    this.train = history.train.points ?? [];
    this.heldOut = history.held_out.points ?? [];
    this.drift = history.drift?.points ?? []; // of outer steps
    this.fresh = 0;
  }

  // addOuter takes in an outer step.
  addOuter({ step, outer }) {
    back(this.drift, step);
    if (outer?.drift !== undefined) {
      this.drift.push(point(step, outer.drift));
    }
  }

  // add takes in a step; one that comes again takes the place of those before.
  add(event) {
    back(this.train, event.step);
    back(this.heldOut, event.step);
    this.fresh++;
    if (event.loss !== null) {
      this.train.push(point(event.step, event.loss));
    }
    if (event.heldout !== null) {
      this.heldOut.push(point(event.step, event.heldout));
    }
  }
}

// spark draws points in little room.
export function spark(points, label) {
  const [width, tall] = [220, 44];
  const [first, last] = [points[0].step, points[points.length - 1].step];
  const high = points.reduce((most, p) => Math.max(most, p.mean), 0) || 1;
  const picture = shape('svg', { class: 'spark', viewBox: `0 0 ${width} ${tall}`, width, height: tall, role: 'img', 'aria-label': label });
  const scale = { x: (step) => 2 + ((width - 4) * (step - first)) / Math.max(1, last - first), y: (value) => tall - 2 - ((tall - 4) * value) / high };
  picture.append(line(points, scale, 'train'));
  return picture;
}

function point(step, value) {
  return { step, mean: value, low: value, high: value };
}

function back(points, step) {
  while (points.length > 0 && points[points.length - 1].step >= step) {
    points.pop();
  }
}

// showCurves draws them as wide as there is room.
export function showCurves(curves) {
  const width = Math.max(280, at('curve').clientWidth);
  if (curves.train.length < 2) {
    tell('curve', el('p', { class: 'empty' }, 'The curve begins with the second step.'));
    return;
  }
  const scale = scaleOf(curves, width);
  const picture = shape('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': 'loss by step' });
  picture.append(...grid(scale, width), band(curves.train, scale), line(curves.train, scale, 'train'), line(curves.heldOut, scale, 'heldout'));
  for (const p of curves.heldOut.length > 80 ? [] : curves.heldOut) {
    picture.append(shape('circle', { class: 'heldout', cx: scale.x(p.step), cy: scale.y(p.mean), r: 2.5 }));
  }
  const reading = el('p', { class: 'reading' });
  const tellStep = () => read(reading, curves, pointed ?? scale.last);
  picture.addEventListener('pointermove', (move) => {
    const box = picture.getBoundingClientRect();
    pointed = scale.step(((move.clientX - box.left) / box.width) * width);
    tellStep();
  });
  picture.addEventListener('pointerleave', () => {
    pointed = null;
    tellStep();
  });
  tellStep();
  tell('curve', picture, reading);
}

// scaleOf maps steps and losses to pixels. Single peaks do not press the rest down: the scale
// ends where the means do, with some room.
function scaleOf(curves, width) {
  const all = [...curves.train, ...curves.heldOut];
  const first = all.reduce((least, p) => Math.min(least, p.step), Infinity);
  const last = all.reduce((most, p) => Math.max(most, p.step), first + 1);
  let low = all.reduce((least, p) => Math.min(least, p.mean), Infinity);
  let high = all.reduce((most, p) => Math.max(most, p.mean), -Infinity);
  const room = Math.max(0.06 * (high - low), 0.005);
  low -= room;
  high += room;
  const wide = width - edge.left - edge.right;
  const tall = height - edge.top - edge.bottom;
  return {
    first, last, low, high,
    x: (step) => edge.left + (wide * (step - first)) / (last - first),
    y: (value) => edge.top + (tall * (high - Math.max(low, Math.min(high, value)))) / (high - low),
    step: (x) => first + ((x - edge.left) / wide) * (last - first),
  };
}

// ticks are round numbers from low to high, some of them.
function ticks(low, high, some) {
  const rough = (high - low) / some;
  const power = 10 ** Math.floor(Math.log10(rough));
  const each = power * [1, 2, 5, 10].find((n) => n * power >= rough);
  const list = [];
  for (let n = Math.ceil(low / each); n * each <= high; n++) {
    list.push(n * each);
  }
  return { list, digits: Math.max(0, -Math.floor(Math.log10(each) + 1e-9)) };
}

function grid(scale, width) {
  const marks = [];
  const rows = ticks(scale.low, scale.high, 5);
  for (const value of rows.list) {
    const y = scale.y(value);
    marks.push(shape('path', { class: 'grid', d: `M${edge.left} ${y}H${width - edge.right}` }),
      shape('text', { class: 'tick', x: edge.left - 6, y: y + 4, 'text-anchor': 'end' }, value.toFixed(rows.digits)));
  }
  for (const step of ticks(scale.first, scale.last, width / 80).list) {
    if (Number.isInteger(step)) {
      marks.push(shape('text', { class: 'tick', x: scale.x(step), y: height - 6, 'text-anchor': 'middle' }, count(step)));
    }
  }
  return marks;
}

function band(points, scale) {
  const above = points.map((p) => `${scale.x(p.step).toFixed(1)} ${scale.y(p.high).toFixed(1)}`);
  const below = points.map((p) => `${scale.x(p.step).toFixed(1)} ${scale.y(p.low).toFixed(1)}`).reverse();
  return shape('path', { class: 'band', d: `M${above.concat(below).join('L')}z` });
}

function line(points, scale, kind) {
  const d = points.map((p) => `${scale.x(p.step).toFixed(1)} ${scale.y(p.mean).toFixed(1)}`).join('L');
  return shape('path', { class: kind, d: d === '' ? '' : `M${d}` });
}

// read tells the values at a step, which is where the pointer is, or the newest.
function read(reading, curves, step) {
  const train = nearest(curves.train, step);
  const heldOut = nearest(curves.heldOut, step);
  reading.replaceChildren(
    el('span', {}, `step ${count(train.step)}`),
    el('span', { class: 'train' }, `training ${loss(train.mean)}`),
    el('span', { class: 'heldout' }, heldOut ? `held-out ${loss(heldOut.mean)} at step ${count(heldOut.step)}` : 'held-out not measured yet'));
}

function nearest(points, step) {
  return points.reduce((best, p) => (best && Math.abs(best.step - step) < Math.abs(p.step - step) ? best : p), null);
}
