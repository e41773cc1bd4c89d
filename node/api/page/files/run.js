// What the run is and how far it is: a sentence, a bar and figures.

import { at, bar, el, say, tell } from './dom.js';
import { ago, count, device, layers, loss, name, params, several, signed, span } from './words.js';

// states are what nodes do, for people.
const states = {
  joining: 'reaching the run',
  profiling: 'measuring this machine',
  waiting: 'waiting for a part in the run',
  loading: 'fetching its part of the model',
  training: 'training',
  draining: 'handing over, about to leave',
  stopped: 'has ended',
};

// showRun shows a status; the held-out loss may be known of before the node was started again.
export function showRun(status, heldOut) {
  at('name').textContent = `run ${status.run}`;
  tell('run', sentence(status), mine(status), progress(status), figures(status, heldOut));
  document.title = `${status.step}/${status.steps} · loss ${loss(status.loss)} · pnode`;
}

// showState says in the corner whether the run goes on.
export function showState(kind, text) {
  const state = at('state');
  state.className = kind;
  say('state', text);
}

// stateOf is the state of a node that answers: [kind, text].
export function stateOf(status) {
  if (status.waiting) {
    return ['waits', 'the run waits'];
  }
  if (status.state === 'training' || (status.tokens_per_s > 0 && status.state === 'waiting')) {
    return ['goes', 'the run goes on'];
  }
  return ['waits', states[status.state] ?? status.state];
}

function sentence(status) {
  const about = status.about;
  if (!about) {
    return el('p', {}, 'This node does not know yet what the run is.');
  }
  const parts = [
    `${params(about.parameters)} parameters`,
    `${about.family}`,
    `${count(about.layers)} layers (embedding, ${several(about.layers - 2, 'block')} of ${count(about.channels)} channels, head)`,
    `${count(about.tokens_per_step)} tokens a step in ${several(about.micros, 'micro-batch').replace('batchs', 'batches')}`,
    `sequences of ${count(about.context)}`,
  ];
  return el('p', {}, parts.join(', '), '.');
}

// mine says what this node has of the run.
function mine(status) {
  const seats = (status.seats ?? []).filter((seat) => seat.peer === status.peer);
  const who = el('strong', { title: status.peer }, 'This node');
  if (seats.length === 0) {
    return el('p', { class: 'mine' }, who, ` (${name(status, status.peer)}) has no part in the plan: ${states[status.state] ?? status.state}.`);
  }
  const held = seats.map((seat) => `${layers(seat.holds.map((h) => h.layers))} on ${device(seat)}`);
  return el('p', { class: 'mine' }, who, ` (${name(status, status.peer)}) holds `, el('strong', {}, held.join(' and ')), '.');
}

function progress(status) {
  const share = status.steps > 0 ? status.step / status.steps : 0;
  return el('div', { class: 'progress' }, bar(`step ${status.step} of ${status.steps}`, [[share, 'busy']]));
}

// precision is what stages that are not in float32 cost, where that was measured.
function precision(status) {
  if (status.held_out === null || status.held_out_f32 === undefined) {
    return [];
  }
  return [['lower precision costs', signed(status.held_out - status.held_out_f32), 'nats a token']];
}

// sensed is how warm a device of this node is, and what power it takes; either may be unknown.
function sensed({ device, celsius, watts }) {
  const power = watts === undefined ? '' : `${watts.toFixed(watts < 10 ? 1 : 0)} W`;
  const what = `${device} of this node`;
  return celsius === undefined ? [what, power, ''] : [what, `${Math.round(celsius)} °C`, power];
}

function figures(status, heldOut) {
  const saved = status.checkpoint;
  const never = saved.time.startsWith('0001');
  const list = [
    ['step', count(status.step), `of ${count(status.steps)}`],
    ['training loss', loss(status.loss), 'nats a token'],
    ['held-out loss', loss(status.held_out ?? heldOut?.mean), 'nats a token'],
    ...precision(status),
    ['speed', status.tokens_per_s > 0 ? count(status.tokens_per_s) : '–', 'tokens/s'],
    ['time left', status.eta_s > 0 ? span(status.eta_s) : '–', ''],
    ['checkpoint', never ? '–' : `step ${count(saved.step)}`, never ? 'none yet' : ago(Date.parse(saved.time)) + (saved.cadence ? `, one every ${count(saved.cadence.every_steps)} steps` : '')],
    ...(saved.saving ? [['under way', `step ${count(saved.saving.step)}`, (saved.saving.s ? `for ${span(saved.saving.s)}, ` : '') + `waits for ${saved.saving.waits.join(', ')}`]] : []),
    ...(status.sensors ?? []).map(sensed),
    ...(status.whole ? [['whole model', status.whole.step ? `step ${count(status.whole.step)}` : '–', status.whole.step ? `on ${status.whole.on}` : 'nowhere']] : []),
  ];
  return el('dl', { class: 'figures' }, ...list.map(([name, value, unit]) =>
    el('div', {}, el('dt', {}, name), el('dd', {}, value, ' ', el('small', {}, unit)))));
}
