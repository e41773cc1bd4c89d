// Axes: which values are shown, where, and with which numbers.

// axis maps values to pixels, from at where value is low to to where it is high.
export function axis(low, high, at, to, log = false) {
  const f = log ? Math.log : (v) => v;
  const inverse = log ? Math.exp : (v) => v;
  const wide = f(high) - f(low);
  return {
    low, high, log,
    place: (value) => at + ((to - at) * (f(Math.max(low, Math.min(high, value))) - f(low))) / wide,
    value: (pixel) => inverse(f(low) + ((pixel - at) / (to - at)) * wide),
  };
}

// roomy is an axis of the means of points with some room around them. Single peaks do not press the
// rest down. Logarithmic where that is asked for and possible.
export function roomy(points, at, to, log, least) {
  let low = points.reduce((least, p) => Math.min(least, p.mean), Infinity);
  let high = points.reduce((most, p) => Math.max(most, p.mean), -Infinity);
  if (log && low > 0) {
    const room = Math.max(0.06 * Math.log(high / low), 0.005);
    return axis(low * Math.exp(-room), high * Math.exp(room), at, to, true);
  }
  const room = Math.max(0.06 * (high - low), least);
  return axis(low - room, high + room, at, to);
}

// ticks are round values on an axis, some of them, each with its text.
export function ticks({ low, high, log }, some) {
  if (log && high / low > 20) {
    return decades(low, high);
  }
  const rough = (high - low) / some;
  const power = 10 ** Math.floor(Math.log10(rough));
  const each = power * [1, 2, 5, 10].find((n) => n * power >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(each) + 1e-9));
  const list = [];
  for (let n = Math.ceil(low / each); n * each <= high; n++) {
    list.push([n * each, digits > 5 ? (n * each).toExponential(1) : (n * each).toFixed(digits)]);
  }
  return list;
}

// decades are 1, 2 and 5 times the powers of ten.
function decades(low, high) {
  const list = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (const n of [1, 2, 5]) {
      const value = n * 10 ** power;
      if (value >= low && value <= high) {
        list.push([value, String(Number(value.toPrecision(1)))]);
      }
    }
  }
  return list;
}
