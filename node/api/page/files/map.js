// All nodes and the links between them: a picture, and the figures as tables. Gone ones stay in the
// table with when and why.

import { at, el, shape, tell } from './dom.js';
import { profiles } from './node.js';
import { layers, memberState, name, rate, several, span, time } from './words.js';

const again = 5000; // milliseconds until what was measured is asked for once more
const mostDrawn = 12; // nodes; more are in the tables alone
const mostTexts = 12; // of links in the picture
const leastTexts = 520; // wide is a picture of three nodes whose texts keep off each other; narrower ones leave them to the table

let known = { devices: [], links: [] };
let askedAt = -Infinity;

// showMap draws them with what is known; figures that cannot be had leave those before.
export async function showMap(status) {
  if (document.hidden) {
    return;
  }
  if (performance.now() - askedAt >= again) {
    askedAt = performance.now();
    try {
      known = await profiles();
    } catch {
      // there is no run yet: the roster says so
    }
  }
  const here = status.roster.filter((m) => m.state !== 'gone');
  tell('map', here.length > 1 && here.length <= mostDrawn ? picture(status, here) : null);
  tell('members', membersTable(status));
  tell('lines', ...linesTable());
}

// speedOf and latencyOf are texts of a link's figures.
function speedOf(link) {
  return link.bytes_per_s ? rate(link.bytes_per_s) : '–';
}

function latencyOf(link) {
  return link.rtt_ms ? time(link.rtt_ms / 2) : '–';
}

const howKnown = (link) => {
  if (link.estimated) {
    return 'estimated: nobody measured it';
  }
  return link.live ? 'messages of the run' : 'a probe when the node came';
};

function linesTable() {
  if (known.links.length === 0) {
    return [el('p', { class: 'empty' }, 'No link yet: it takes a second node.')];
  }
  const rows = known.links.map((link) => [
    link.from_node, link.to_node, speedOf(link), latencyOf(link), link.jitter_ms ? time(link.jitter_ms) : '–',
    link.transport ?? '–', howKnown(link), link.used ? 'yes' : 'no',
  ]);
  const { links = 0 } = known.rest ?? {};
  return [
    table('links between nodes', ['from', 'to', 'bandwidth', 'one way', 'jitter', 'over', 'known by', 'in the plan'], rows,
      known.links.map((link) => (link.estimated ? 'estimated' : ''))),
    links > 0 ? el('p', { class: 'why' }, `${several(links, 'link')} more: \`pnode profile --all\` has each.`) : null,
  ].filter(Boolean);
}

function membersTable(status) {
  const order = (m) => (m.state === 'gone' ? 2 : m.placed ? 0 : 1);
  const list = [...status.roster].sort((a, b) => order(a) - order(b));
  const rows = list.map((m) => {
    const devices = known.devices.filter((d) => d.peer === m.peer && m.state !== 'gone');
    const held = devices.flatMap((d) => d.layers ?? []);
    const sum = (what) => devices.reduce((all, d) => all + (d[what] ?? 0), 0);
    return [
      name(status, m.peer), whatState(m), m.device || 'not measured yet', held.length > 0 ? layers(held) : 'none',
      sum('planned_ms') ? time(sum('planned_ms')) : '–', sum('measured_ms') ? time(sum('measured_ms')) : '–',
      m.self ? 'this node' : m.last_seen_s ? `${span(m.last_seen_s)} ago` : 'never',
    ];
  });
  return table('nodes of the run', ['node', 'state', 'device', 'holds', 'a step by its profile', 'a step as measured', 'heard'], rows,
    list.map((m) => (m.state === 'gone' ? 'gone' : '')));
}

// whatState says also since when and why a node is gone or leaves.
function whatState(member) {
  const since = member.gone_since ? ` since ${new Date(member.gone_since).toLocaleString()}` : '';
  return `${memberState(member)}${since}${member.reason ? `: ${member.reason}` : ''}`;
}

// table scrolls within itself where it is wider than the screen.
function table(label, heads, rows, kinds) {
  return el('table', { 'aria-label': label },
    el('thead', {}, el('tr', {}, ...heads.map((text) => el('th', { scope: 'col' }, text)))),
    el('tbody', {}, ...rows.map((row, i) => el('tr', { class: kinds[i] },
      ...row.map((text, column) => (column === 0 ? el('th', { scope: 'row' }, text) : el('td', {}, text)))))));
}

// picture has the nodes on an ellipse. Each direction of a link bends to its own side, as wide as its
// bandwidth has digits.
function picture(status, here) {
  const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 10;
  const width = Math.max(280, Math.min(at('map').clientWidth, 900 * unit));
  const height = here.length === 2 ? 130 * unit : Math.max(250 * unit, Math.min(0.45 * width, 420 * unit));
  const places = new Map(here.map((m, i) => {
    const angle = (2 * Math.PI * i) / here.length - (here.length === 2 ? Math.PI : Math.PI / 2);
    return [m.peer, { x: width / 2 + (width / 2 - 70 * unit) * Math.cos(angle), y: height / 2 + (height / 2 - 32 * unit) * Math.sin(angle) }];
  }));
  const links = known.links.filter((link) => places.has(link.from) && places.has(link.to));
  const fitting = links.length <= mostTexts ? links : links.filter((link) => link.used).slice(0, mostTexts);
  const named = here.length > 2 && width < leastTexts * unit ? [] : fitting;
  const svg = shape('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `${several(here.length, 'node')} and their links; the tables below have the figures` });
  for (const link of links) {
    svg.append(...way(link, places.get(link.from), places.get(link.to), named.includes(link), unit));
  }
  for (const m of here) {
    const { x, y } = places.get(m.peer);
    svg.append(shape('circle', { class: m.placed ? 'node placed' : 'node', cx: x, cy: y, r: 9 * unit }),
      shape('text', { class: 'who', x, y: y + (y < height / 2 ? -14 : 24) * unit, 'text-anchor': 'middle' }, name(status, m.peer)));
  }
  return svg;
}

// way is one direction: a bent line, an arrow in its middle, and its figures.
function way(link, from, to, named, unit) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const far = Math.hypot(dx, dy) || 1;
  const [nx, ny] = [-dy / far, dx / far]; // to the right of who goes along it
  const bend = 30 * unit;
  const [cx, cy] = [(from.x + to.x) / 2 + nx * bend, (from.y + to.y) / 2 + ny * bend];
  const [mx, my] = [(from.x + to.x) / 2 + (nx * bend) / 2, (from.y + to.y) / 2 + (ny * bend) / 2];
  const kind = `${link.used ? 'used' : 'free'}${link.estimated ? ' estimated' : ''}`;
  const wide = unit * Math.max(1, Math.min(5, Math.log10((8 * (link.bytes_per_s || 1)) / 1e5)));
  const parts = [
    shape('path', { class: kind, d: `M${from.x} ${from.y}Q${cx} ${cy} ${to.x} ${to.y}`, 'stroke-width': wide },
      shape('title', {}, `${link.from_node} → ${link.to_node}: ${speedOf(link)}, ${latencyOf(link)} one way; ${howKnown(link)}`)),
    shape('path', { class: `arrowhead ${kind}`, d: 'M-5-5L6 0L-5 5z', transform: `translate(${mx} ${my}) rotate(${(Math.atan2(dy, dx) * 180) / Math.PI}) scale(${unit})` }),
  ];
  if (named) {
    const [tx, ty] = [mx + nx * 11 * unit, my + ny * 13 * unit];
    const anchor = nx > 0.4 ? 'start' : nx < -0.4 ? 'end' : 'middle';
    parts.push(shape('text', { class: 'figure', x: tx, y: ty + 4 * unit, 'text-anchor': anchor },
      `${link.estimated ? '≈ ' : ''}${speedOf(link)}, ${latencyOf(link)}`));
  }
  return parts;
}
