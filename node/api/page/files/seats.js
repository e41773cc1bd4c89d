// The nodes as a picture: the devices of each replica in order, with what they hold and where
// their time goes, and the links between them.

import { bar, el, tell } from './dom.js';
import { device, layers, memberState, name, params, percent, rate, several, size, time } from './words.js';

export function showSeats(status) {
  const seats = status.seats ?? [];
  if (seats.length === 0) {
    tell('seats', el('p', { class: 'empty' }, 'There is no plan yet.'));
  } else {
    const rows = byReplica(seats);
    tell('seats', ...[...rows].map(([replica, row]) => pipeline(status, replica, row, rows.size > 1)), key(), ...more(status), ...ways(status));
  }
  showOthers(status);
}

// byReplica puts devices into the rows of the replicas that their first stages are of.
function byReplica(seats) {
  const rows = new Map();
  for (const seat of seats) {
    const { replica } = seat.holds[0];
    rows.set(replica, [...(rows.get(replica) ?? []), seat]);
  }
  return rows;
}

function pipeline(status, replica, row, named) {
  const parts = [];
  row.forEach((seat, i) => {
    if (i > 0) {
      parts.push(between(status, row[i - 1], seat));
    }
    parts.push(card(status, seat, named ? 'h4' : 'h3'));
  });
  return el('div', { class: 'replica' }, named ? el('h3', {}, `replica ${replica}`) : null, el('div', { class: 'row' }, ...parts));
}

// card is a device, with a heading one level below that of its row.
function card(status, seat, heading) {
  const own = seat.peer === status.peer;
  const member = status.roster.find((m) => m.peer === seat.peer);
  return el('article', { class: own ? 'seat own' : 'seat' },
    el(heading, { title: seat.peer }, name(status, seat.peer), ...marks(status, seat, member)),
    el('p', { class: 'device', title: seat.model }, device(seat)),
    el('p', { class: 'holds' }, el('strong', {}, layers(seat.holds.map((h) => h.layers))), ` · ${params(seat.parameters)} parameters`),
    strip(status, seat),
    memory(seat),
    times(seat));
}

// marks say what is special about a node.
function marks(status, seat, member) {
  const list = [];
  if (seat.peer === status.peer) {
    list.push(el('span', { class: 'mark' }, 'this node'));
  }
  if (seat.peer === status.leader) {
    list.push(el('span', { class: 'mark', title: 'makes the plans' }, 'leader'));
  }
  if (member?.not_used) {
    list.push(el('span', { class: 'mark bad' }, `not used ${member.not_used}`));
  }
  if (member && member.state !== 'active') {
    list.push(el('span', { class: 'mark bad' }, memberState(member)));
  }
  const { lost, by, text } = status.substitute ?? {};
  if (seat.peer === lost) {
    list.push(el('span', { class: 'mark', title: text }, `${name(status, by)} computes its part`));
  }
  if (seat.peer === by) {
    list.push(el('span', { class: 'mark', title: text }, `also computes the part of ${name(status, lost)}`));
  }
  return list;
}

// strip is the whole model from embedding to head with the layers that a seat holds.
function strip(status, seat) {
  const all = status.about?.layers ?? 1;
  const parts = [];
  let end = 0;
  for (const { layers: range } of [...seat.holds].sort((a, b) => a.layers.first - b.layers.first)) {
    parts.push([(range.first - end) / all, 'gap'], [(range.end - range.first) / all, 'held']);
    end = range.end;
  }
  return bar(`of layers 0 to ${all - 1}, from the embedding to the head`, parts);
}

function memory(seat) {
  const share = seat.free_bytes > 0 ? seat.memory_bytes / seat.free_bytes : 0;
  const text = `${size(seat.memory_bytes)} of ${size(seat.free_bytes)}`;
  return el('p', { class: 'line' }, el('span', {}, 'memory'), bar(text, [[share, 'memory']]), el('span', { class: 'value' }, text));
}

function times(seat) {
  if (!seat.step_ms || !seat.busy_ms) {
    return el('p', { class: 'line' }, el('span', {}, 'time'), el('span', { class: 'value' }, 'no step yet'));
  }
  const busy = seat.busy_ms / seat.step_ms;
  const exposed = (seat.exposed_ms ?? 0) / seat.step_ms;
  const waits = Math.max(0, 1 - busy - exposed);
  const text = `${percent(busy)} busy`;
  const label = `${percent(busy)} computing, ${percent(exposed)} waiting for a message that is under way, ${percent(waits)} waiting otherwise, of ${time(seat.step_ms)}`;
  return el('p', { class: 'line' }, el('span', {}, 'time'), bar(label, [[busy, 'busy'], [exposed, 'exposed'], [waits, 'waits']]),
    el('span', { class: 'value' }, text));
}

// between is the link from one device to the next, both ways.
function between(status, from, to) {
  if (from.peer === to.peer) {
    return el('div', { class: 'link' }, el('span', { class: 'arrow' }, '⇄'), el('span', {}, 'same node'));
  }
  const way = (a, b) => (status.links ?? []).find((l) => l.from === a && l.to === b);
  const forth = way(from.peer, to.peer);
  const back = way(to.peer, from.peer);
  return el('div', { class: 'link' }, direction('→', forth), direction('←', back));
}

// overNames says over what the messages of a link go.
const overNames = { quic: 'QUIC', tcp: 'TCP', websocket: 'WebSocket', relay: 'through a relay' };

function direction(arrow, link) {
  if (!link || !link.rtt_ms) {
    return el('span', { class: 'way' }, el('span', { class: 'arrow' }, arrow), ' not measured');
  }
  const speed = link.bytes_per_s ? rate(link.bytes_per_s) : '';
  const seen = link.live ? 'seen in messages of the run' : 'probed when the node came';
  const over = overNames[link.transport] ?? '';
  return el('span', { class: 'way', title: `${seen}; jitter ${time(link.jitter_ms ?? 0)}` },
    el('span', {}, el('span', { class: 'arrow' }, arrow), ` ${speed}`), el('span', {}, time(link.rtt_ms / 2)), el('span', {}, over));
}

// ways say why links of the plan go over what they do, where there is something to say.
function ways(status) {
  const told = (status.links ?? []).filter((link) => link.transport_reason);
  const line = (link) => {
    const over = overNames[link.transport] ?? '';
    const on = over && link.transport !== 'relay' ? `on ${over}` : over;
    return el('p', { class: 'why' }, `${name(status, link.from)} → ${name(status, link.to)}${on ? ` ${on}` : ''}: ${link.transport_reason}`);
  };
  return told.map(line);
}

function key() {
  const entry = (kind, text) => el('span', {}, el('i', { class: kind }), text);
  return el('p', { class: 'key' }, entry('busy', 'computing'), entry('exposed', 'a message is under way (simulated)'), entry('waits', 'waiting otherwise'));
}

// more counts the devices and links of a large plan that are not shown.
function more(status) {
  const { devices = 0, links = 0 } = status.rest ?? {};
  const counts = [[devices, 'device'], [links, 'link']].filter(([count]) => count > 0).map(([count, what]) => several(count, what));
  return counts.length > 0 ? [el('p', { class: 'why' }, `The plan has ${counts.join(' and ')} more: \`pnode status --all\` has each.`)] : [];
}

// showOthers names the nodes that the plan has no part for; of many it counts most.
function showOthers(status) {
  const rest = status.roster.filter((m) => !m.placed && m.state !== 'gone');
  const text = rest.map((m) => `${name(status, m.peer)} (${m.self ? 'this node, ' : ''}${memberState(m)}; ${m.not_used ? `not used ${m.not_used}; ` : ''}${m.device || 'not measured yet'}${m.spare ? `; it ${m.spare}` : ''})`);
  for (const group of status.rest?.members ?? []) {
    if (!group.placed && group.state !== 'gone') {
      text.push(`${several(group.count, 'node')} more (${[group.state, group.device].filter(Boolean).join('; ')})`);
    }
  }
  tell('others', text.length > 0 ? `Without a part in the plan: ${text.join(', ')}.` : '');
}
