// What is known of the run's steps: losses and, beside them, rates. The node keeps curves thinned
// out; newer steps come one by one.

import { shape } from './dom.js';

// mostNew steps are kept beside the node's points before they are asked for again.
export const mostNew = 512;

// Curves are the curves as far as this page knows them.
export class Curves {
  constructor(history) {
    this.train = history.train.points ?? [];
    this.heldOut = history.held_out.points ?? [];
    this.drift = history.drift?.points ?? []; // of outer steps
    this.learningRate = history.learning_rate?.points ?? [];
    this.gradientNorm = history.gradient_norm?.points ?? [];
    this.tokensPerS = history.tokens_per_s?.points ?? [];
    this.fresh = 0;
  }

  // addOuter takes in an outer step.
  addOuter({ step, outer }) {
    put(this.drift, step, outer?.drift);
  }

  // add takes in a step; one that comes again takes the place of those before.
  add(event) {
    this.fresh++;
    put(this.train, event.step, event.loss);
    put(this.heldOut, event.step, event.held_out);
    put(this.learningRate, event.step, event.learning_rate || null);
    put(this.gradientNorm, event.step, event.gradient_norm);
    put(this.tokensPerS, event.step, event.tokens_per_s || null);
  }
}

// put adds a value that may be missing.
function put(points, step, value) {
  while (points.length > 0 && points[points.length - 1].step >= step) {
    points.pop();
  }
  if (value !== null && value !== undefined) {
    points.push({ step, count: 1, mean: value, low: value, high: value });
  }
}

// smoothed is the exponential moving average: each step weighs factor times as much as the one
// after it. The weights of the steps there are add up to 1, so that the first ones are not drawn
// towards 0. A point that stands for several steps counts as that many.
export function smoothed(points, factor) {
  let sum = 0;
  let weight = 0;
  let before = 0;
  return points.map((p) => {
    const keep = before === 0 ? 0 : factor ** (p.step - before);
    const add = 1 - factor ** (p.count ?? 1);
    before = p.step;
    sum = keep * sum + add * p.mean;
    weight = keep * weight + add;
    return { ...p, mean: sum / weight };
  });
}

// pathOf joins points by their means.
export function pathOf(points, scale) {
  const d = points.map((p) => `${scale.x(p.step).toFixed(1)} ${scale.y(p.mean).toFixed(1)}`).join('L');
  return d === '' ? '' : `M${d}`;
}

// nearest is the point closest to a step, null of none.
export function nearest(points, step) {
  return points.reduce((best, p) => (best && Math.abs(best.step - step) < Math.abs(p.step - step) ? best : p), null);
}

// spark draws points in little room.
export function spark(points, label) {
  const [width, tall] = [220, 44];
  const [first, last] = [points[0].step, points[points.length - 1].step];
  const high = points.reduce((most, p) => Math.max(most, p.mean), 0) || 1;
  const scale = { x: (step) => 2 + ((width - 4) * (step - first)) / Math.max(1, last - first), y: (value) => tall - 2 - ((tall - 4) * value) / high };
  return shape('svg', { class: 'spark', viewBox: `0 0 ${width} ${tall}`, width, height: tall, role: 'img', 'aria-label': label },
    shape('path', { class: 'train', d: pathOf(points, scale) }));
}
