// Numbers, times and names for people.

const plain = new Intl.NumberFormat('en');

// count is a whole number with separators.
export function count(n) {
  return plain.format(Math.round(n));
}

// several is "1 node" or "3 nodes".
export function several(n, what) {
  return `${count(n)} ${what}${n === 1 ? '' : 's'}`;
}

function scaled(value, units, step, unit) {
  let n = value;
  let i = 0;
  while (n >= step && i < units.length - 1) {
    n /= step;
    i++;
  }
  const digits = n < 10 && i > 0 ? 1 : 0;
  return `${n.toFixed(digits)} ${units[i]}${unit}`.trim();
}

// size is a number of bytes, rate one of bytes a second as links are sold.
export function size(bytes) {
  return scaled(bytes, ['', 'k', 'M', 'G', 'T'], 1000, 'B');
}

export function rate(bytesPerSecond) {
  return scaled(8 * bytesPerSecond, ['', 'k', 'M', 'G', 'T'], 1000, 'bit/s');
}

// params is a number of parameters: 10.8 M.
export function params(n) {
  if (n < 1e6) {
    return count(n);
  }
  return n < 1e9 ? `${(n / 1e6).toFixed(n < 1e8 ? 1 : 0)} M` : `${(n / 1e9).toFixed(1)} B`;
}

// time is a number of milliseconds.
export function time(ms) {
  if (ms < 1) {
    return `${ms.toFixed(2)} ms`;
  }
  return ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}

// span is a number of seconds in the two largest units.
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) {
    return `${s} s`;
  }
  if (s < 3600) {
    return `${Math.floor(s / 60)} min ${s < 600 ? `${s % 60} s` : ''}`.trim();
  }
  if (s < 86400) {
    return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  }
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// ago is how long a moment in milliseconds since 1970 is past.
export function ago(moment) {
  const seconds = (Date.now() - moment) / 1000;
  return seconds < 2 ? 'just now' : `${span(seconds)} ago`;
}

// device is what people call a device of the plan: its product, and which one of its node's where there are several.
export function device(seat) {
  return seat.title || seat.model || seat.device;
}

// name is what people call a node: its machine's name, or else the end of its peer ID.
export function name(status, peer) {
  return status.roster?.find((m) => m.peer === peer)?.name || short(peer);
}

// memberState is the state of a member, and since when one is silent.
export function memberState(member) {
  if (!member.silent_since) {
    return member.state;
  }
  const since = new Date(member.silent_since);
  const old = Date.now() - since > 43200e3;
  return `${member.state} since ${old ? since.toLocaleString() : since.toLocaleTimeString()}`;
}

// short is the end of a long peer ID; its beginning is the same for all.
function short(peer) {
  return peer.length <= 16 ? peer : `…${peer.slice(-8)}`;
}

// layers is "layer 3" or "layers 4–7" of half-open ranges.
export function layers(ranges) {
  const one = ranges.length === 1 && ranges[0].end - ranges[0].first === 1;
  const text = ranges.map((r) => (r.end - r.first === 1 ? `${r.first}` : `${r.first}–${r.end - 1}`));
  return `${one ? 'layer' : 'layers'} ${text.join(', ')}`;
}

export function percent(share) {
  return `${Math.round(100 * share)}%`;
}

// loss has the digits that matter of a number that may be missing.
export function loss(value) {
  return value === null || value === undefined ? '–' : value.toFixed(value < 10 ? 4 : 2);
}

// signed is a difference with its sign and the digits that matter.
export function signed(value) {
  const digits = Number(Math.abs(value).toPrecision(2)).toLocaleString('en', { maximumFractionDigits: 20, useGrouping: false });
  return `${value < 0 ? '−' : '+'}${digits}`;
}
