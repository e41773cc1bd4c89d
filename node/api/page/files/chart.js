// The chart of the losses: training as a line within a band from the least to the greatest,
// held-out as dots that are joined, and what was chosen beside them on an axis of its own. Who looks
// chooses axis and smoothing, zooms and moves, by pointer or keys.

import { nearest, pathOf, smoothed } from './curve.js';
import { at, el, shape, tell } from './dom.js';
import { axis, roomy, ticks } from './scale.js';
import { count, loss } from './words.js';

// besides are the curves that go beside the losses, by their names in Curves.
const besides = {
  learningRate: ['learning rate', (v) => String(Number(v.toPrecision(3)))],
  gradientNorm: ['gradient norm', (v) => String(Number(v.toPrecision(3)))],
  tokensPerS: ['tokens/s', count],
};

const leastSteps = 2; // that are zoomed to
const leastDrag = 6; // pixels; less is a click

// view is what is chosen. Range is [first, last] of the steps shown, null for all; pointed the step
// that is read, null for the newest; drag a drag under way.
const view = { log: false, smoothing: 0, beside: '', range: null, pointed: null, drag: null };

// drawn is what is on the screen: the curves and the scale; null before there is a curve.
let drawn = null;
let frame = 0; // a drawing that is asked for

// showCurves draws them as wide as there is room.
export function showCurves(curves) {
  if (curves.train.length < 2) {
    drawn = null;
    tell('curve', el('p', { class: 'empty' }, 'The curve begins with the second step.'));
    at('curve').setAttribute('aria-valuetext', 'no curve yet');
    tell('reading');
    return;
  }
  const scale = scaleOf(curves);
  drawn = { curves, scale };
  const { width, height, edge } = scale;
  const picture = shape('svg', { viewBox: `0 0 ${width} ${height}`, width, height, 'aria-hidden': 'true' });
  const [wide, tall] = [width - edge.left - edge.right, height - edge.top - edge.bottom];
  const plot = shape('svg', { x: edge.left, y: edge.top, width: wide, height: tall, viewBox: `${edge.left} ${edge.top} ${wide} ${tall}` });
  plot.append(...lines(curves, scale), ...pointer(scale));
  picture.append(...grid(scale), plot);
  tell('curve', picture);
  tellRange(scale);
  read(curves, scale);
}

// redraw shows a change of the view with the next frame.
function redraw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => drawn && showCurves(drawn.curves));
}

// within are the points of the steps shown, and one on either side, to which lines go on.
function within(points, [first, last]) {
  const from = points.findIndex((p) => p.step >= first);
  const end = points.findLastIndex((p) => p.step <= last);
  return points.slice(from < 0 ? points.length : Math.max(0, from - 1), end + 2);
}

function scaleOf(curves) {
  const all = [curves.train[0].step, curves.train.at(-1).step];
  const range = view.range ? [Math.max(all[0], view.range[0]), Math.min(all[1], view.range[1])] : all;
  if (range[1] - range[0] < 1) {
    [view.range, range[0], range[1]] = [null, ...all]; // the run went back before what was shown
  }
  const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 10; // texts grow with it
  const beside = view.beside ? within(curves[view.beside], range) : [];
  const edge = { left: 48 * unit, right: (beside.length > 0 ? 62 : 12) * unit, top: 10 * unit, bottom: 26 * unit };
  const width = Math.max(280, at('curve').clientWidth);
  const height = 260 * unit;
  const x = axis(range[0], range[1], edge.left, width - edge.right);
  const y = roomy([...within(curves.train, range), ...within(curves.heldOut, range)], height - edge.bottom, edge.top, view.log, 0.005);
  const right = beside.length > 0 ? roomy(beside, height - edge.bottom, edge.top, false, 1e-9 + 0.02 * Math.abs(beside[0].mean)) : null;
  return { width, height, edge, unit, all, range, horizontal: x, vertical: y, right, x: past(x), y: y.place, step: x.value };
}

// past maps also what is outside of an axis.
function past({ low, high, place }) {
  const [from, each] = [place(low), (place(high) - place(low)) / (high - low)];
  return (value) => from + (value - low) * each;
}

function grid({ width, height, edge, unit, horizontal, vertical, right }) {
  const marks = [];
  for (const [value, text] of ticks(vertical, 5)) {
    const y = vertical.place(value);
    marks.push(shape('path', { class: 'grid', d: `M${edge.left} ${y}H${width - edge.right}` }),
      shape('text', { class: 'tick', x: edge.left - 6 * unit, y: y + 4 * unit, 'text-anchor': 'end' }, text));
  }
  for (const [value, text] of right ? ticks(right, 5) : []) {
    marks.push(shape('text', { class: 'tick beside', x: width - edge.right + 6 * unit, y: right.place(value) + 4 * unit }, text));
  }
  for (const [step] of ticks(horizontal, width / (80 * unit))) {
    if (Number.isInteger(step)) {
      marks.push(shape('text', { class: 'tick', x: horizontal.place(step), y: height - 6 * unit, 'text-anchor': 'middle' }, count(step)));
    }
  }
  return marks;
}

function lines(curves, scale) {
  const train = within(curves.train, scale.range);
  const heldOut = within(curves.heldOut, scale.range);
  const list = [band(train, scale)];
  if (scale.right) {
    list.push(shape('path', { class: 'beside', d: pathOf(within(curves[view.beside], scale.range), { x: scale.x, y: scale.right.place }) }));
  }
  list.push(shape('path', { class: view.smoothing > 0 ? 'train raw' : 'train', d: pathOf(train, scale) }));
  if (view.smoothing > 0) {
    list.push(shape('path', { class: 'train', d: pathOf(within(smoothed(curves.train, view.smoothing), scale.range), scale) }));
  }
  list.push(shape('path', { class: 'heldout', d: pathOf(heldOut, scale) }));
  for (const p of heldOut.length > 80 ? [] : heldOut) {
    list.push(shape('circle', { class: 'heldout', cx: scale.x(p.step), cy: scale.y(p.mean), r: 2.5 * scale.unit }));
  }
  return list;
}

function band(points, scale) {
  const above = points.map((p) => `${scale.x(p.step).toFixed(1)} ${scale.y(p.high).toFixed(1)}`);
  const below = points.map((p) => `${scale.x(p.step).toFixed(1)} ${scale.y(p.low).toFixed(1)}`).reverse();
  return shape('path', { class: 'band', d: `M${above.concat(below).join('L')}z` });
}

// pointer marks the step that is read, and the steps that are being selected.
function pointer({ x, height }) {
  const { drag, pointed } = view;
  if (drag?.to !== undefined) {
    const [from, to] = [x(drag.from), x(drag.to)];
    return [shape('rect', { class: 'chosen', x: Math.min(from, to), y: 0, width: Math.abs(to - from), height })];
  }
  return pointed === null ? [] : [shape('path', { class: 'cursor', d: `M${x(pointed)} 0V${height}` })];
}

function tellRange({ range }) {
  at('whole').hidden = view.range === null;
  at('whole').textContent = `All steps (shown: ${count(range[0])} to ${count(range[1])})`;
}

// read tells the values at a step, which is where the pointer is, or the newest.
function read(curves, scale) {
  const step = view.pointed ?? scale.range[1];
  const train = nearest(curves.train, step);
  const heldOut = nearest(curves.heldOut, step);
  const texts = [
    ['', `step ${count(train.step)}${train.count > 1 ? `, mean of ${count(train.count)} steps` : ''}`],
    ['train', `training ${loss(train.mean)}`],
  ];
  if (view.smoothing > 0) {
    texts.push(['train', `smoothed ${loss(nearest(smoothed(curves.train, view.smoothing), step).mean)}`]);
  }
  texts.push(['heldout', heldOut ? `held-out ${loss(heldOut.mean)} at step ${count(heldOut.step)}` : 'held-out not measured yet']);
  if (view.beside) {
    const [what, text] = besides[view.beside];
    const p = nearest(curves[view.beside], step);
    texts.push(['beside', p ? `${what} ${text(p.mean)}` : `${what} not known yet`]);
  }
  tell('reading', ...texts.map(([kind, text]) => el('span', kind ? { class: kind } : {}, text)));
  const values = { 'aria-valuemin': scale.range[0], 'aria-valuemax': scale.range[1], 'aria-valuenow': train.step, 'aria-valuetext': texts.map(([, text]) => text).join(', ') };
  for (const [name, value] of Object.entries(values)) {
    at('curve').setAttribute(name, value);
  }
}

// zoomTo shows a range of steps, cut to what there is; all of them is no range.
function zoomTo(first, last) {
  const { all } = drawn.scale;
  const wide = Math.max(leastSteps, Math.min(last - first, all[1] - all[0]));
  const from = Math.round(Math.max(all[0], Math.min(first, all[1] - wide)));
  const to = Math.round(from + wide);
  view.range = from <= all[0] && to >= all[1] ? null : [from, to];
  redraw();
}

// move shifts the steps shown by a part of their number.
function move(part) {
  const [first, last] = drawn.scale.range;
  const by = part * (last - first);
  zoomTo(first + by, last + by);
}

// zoom shows so many times as many steps, around the one that is read.
function zoom(times) {
  const [first, last] = drawn.scale.range;
  const middle = view.pointed ?? (first + last) / 2;
  zoomTo(middle - (middle - first) * times, middle + (last - middle) * times);
}

// readOn reads so many points further on.
function readOn(points) {
  const { curves: { train }, scale: { range } } = drawn;
  const here = train.indexOf(nearest(train, view.pointed ?? range[1]));
  const { step } = train[Math.max(0, Math.min(train.length - 1, here + points))];
  view.pointed = Math.max(range[0], Math.min(range[1], step));
  redraw();
}

// keys do what the pointer can.
const keys = {
  ArrowLeft: () => readOn(-1), ArrowRight: () => readOn(1), ArrowDown: () => readOn(-1), ArrowUp: () => readOn(1),
  PageDown: () => readOn(-10), PageUp: () => readOn(10), Home: () => readOn(-Infinity), End: () => readOn(Infinity),
  '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), Escape: () => zoomTo(-Infinity, Infinity),
};
const shifted = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2) };

// beginChart has the chart answer pointer and keys, and what is chosen above it.
export function beginChart() {
  const chart = at('curve');
  const on = (target, kind, handle, options) => target.addEventListener(kind, (event) => drawn && handle(event), options);
  const stepAt = (event) => {
    const box = chart.getBoundingClientRect();
    const { scale } = drawn;
    return Math.max(scale.range[0], Math.min(scale.range[1], scale.step(((event.clientX - box.left) / box.width) * scale.width)));
  };
  on(chart, 'keydown', (event) => {
    const act = event.altKey || event.ctrlKey || event.metaKey ? null : (event.shiftKey && shifted[event.key]) || keys[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
  on(chart, 'blur', () => point(null));
  on(chart, 'pointerdown', (event) => {
    if (event.button === 0) {
      view.drag = { from: stepAt(event), at: event.clientX, moves: event.shiftKey && view.range };
      chart.setPointerCapture(event.pointerId);
    }
  });
  on(chart, 'pointermove', (event) => {
    const { drag } = view;
    if (!drag) {
      point(stepAt(event));
    } else if (drag.moves) {
      const by = ((drag.at - event.clientX) / chart.clientWidth) * (drag.moves[1] - drag.moves[0]);
      zoomTo(drag.moves[0] + by, drag.moves[1] + by);
    } else if (Math.abs(event.clientX - drag.at) >= leastDrag) {
      drag.to = stepAt(event);
      redraw();
    }
  });
  on(chart, 'pointerup', () => {
    const { drag } = view;
    view.drag = null;
    if (drag?.to !== undefined) {
      zoomTo(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
    }
  });
  on(chart, 'pointercancel', () => { view.drag = null; redraw(); });
  on(chart, 'pointerleave', () => point(null));
  on(chart, 'dblclick', () => zoomTo(-Infinity, Infinity));
  on(chart, 'wheel', (event) => {
    if (view.range && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      move(event.deltaX / chart.clientWidth);
    }
  }, { passive: false });
  at('whole').addEventListener('click', () => { zoomTo(-Infinity, Infinity); chart.focus(); });
  at('log').addEventListener('change', ({ target }) => { view.log = target.checked; redraw(); });
  at('smoothing').addEventListener('change', ({ target }) => { view.smoothing = Number(target.value); redraw(); });
  at('beside').addEventListener('change', ({ target }) => { view.beside = target.value; redraw(); });
}

function point(step) {
  view.pointed = step;
  redraw();
}
