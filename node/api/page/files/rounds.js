// Replicas with local steps: how far each is in the round, who waits for whom, and how the newest
// outer step was.

import { spark } from './curve.js';
import { at, bar, el, tell } from './dom.js';
import { count, loss, name, percent, several, size, span, time } from './words.js';

// drift has a point for each outer step that is known of.
export function showRounds(status, drift) {
  const replicas = status.replicas ?? [];
  at('apart').hidden = replicas.length === 0;
  if (replicas.length === 0) {
    return;
  }
  const more = status.rest?.replicas ?? 0;
  tell('rounds',
    status.round ? el('p', {}, el('strong', {}, 'Round'), `: ${status.round.text}.`) : null,
    ...outer(status),
    drift.length > 1 ? el('p', { class: 'why' }, 'drift by step, from 0', spark(drift, 'drift of outer steps')) : null,
    el('div', { class: 'row cards' }, ...replicas.map((replica) => card(status, replica))),
    more > 0 ? el('p', { class: 'why' }, `${several(more, 'replica')} more: \`pnode status --all\` has each.`) : null);
}

// outer is how the newest outer step was: a sentence and figures.
function outer(status) {
  const step = status.outer;
  if (!step) {
    return [el('p', { class: 'empty' }, 'No outer step yet.')];
  }
  const figures = [
    ...(step.drift === undefined ? [] : [['drift', number(step.drift), '0: all learned the same']]),
    ...(step.waited_share ? [['stood still', `${(100 * step.waited_share).toFixed(1)}%`, 'of the round, all replicas']] : []),
    ...(step.exchange_s ? [['exchange', time(1000 * step.exchange_s), step.hidden_s ? `messages came for ${time(1000 * step.hidden_s)} during inner steps` : 'no message came during inner steps']] : []),
    ['between replicas', number(step.bytes_per_token), `bytes a token; every step: ${number(step.every_step_bytes_per_token)}`],
    ...(step.sent_bytes ? [['sent from here', size(step.sent_bytes), 'in the round']] : []),
  ];
  return [
    el('p', {}, el('strong', {}, 'Newest outer step'), `: ${step.text}.`),
    el('dl', { class: 'figures' }, ...figures.map(([what, value, unit]) =>
      el('div', {}, el('dt', {}, what), el('dd', {}, value, ' ', el('small', {}, unit))))),
  ];
}

// number has three digits that say something.
function number(value) {
  return Number(value.toPrecision(3)).toLocaleString('en', { maximumFractionDigits: 20 });
}

function card(status, replica) {
  const own = replica.peer === status.peer;
  const part = partOf(status, replica);
  const share = replica.of > 0 ? replica.made / replica.of : 0;
  const steps = `${count(replica.made)} of ${count(replica.of)}`;
  const bad = replica.state === 'silent' || replica.state === 'left out';
  return el('article', { class: own ? 'seat own' : 'seat' },
    el('h3', { title: replica.peer }, `replica ${replica.replica}`, el('small', {}, name(status, replica.peer)),
      own ? el('span', { class: 'mark' }, 'this node') : null,
      bad || replica.state === 'ended' ? el('span', { class: bad ? 'mark bad' : 'mark' }, bad ? replica.state : 'waits') : null,
      part?.far ? el('span', { class: 'mark bad', title: part.far }, 'far from the others') : null),
    el('p', { class: 'device', title: replica.text }, replica.text),
    line('round', bar(`${steps} inner steps of the round`, [[share, 'busy']]), steps),
    ...waited(part),
    line('now', null, replica.step > 0 ? `step ${count(replica.step)}, loss ${loss(replica.loss)}${replica.tokens_per_s ? `, ${count(replica.tokens_per_s)} tokens/s` : ''}` : 'no step yet'),
    part?.norm === undefined ? null : line('learned', null, `norm ${number(part.norm)}, cosine ${part.cosine.toFixed(2)} with the others`),
    part?.far ? el('p', { class: 'why' }, part.far) : null,
    part?.why ? el('p', { class: 'why' }, `did not count in the newest outer step: ${part.why}`) : null);
}

// partOf is a replica's part in the newest outer step of the plan: plans number replicas anew.
function partOf(status, replica) {
  if (status.outer?.generation !== status.generation) {
    return undefined;
  }
  return status.outer.replicas.find((p) => p.replica === replica.replica);
}

function waited(part) {
  if (!part?.round_s) {
    return [];
  }
  const share = (part.waited_s ?? 0) / part.round_s;
  const label = `in its newest round it stood still for ${span(part.waited_s ?? 0)} of ${span(part.round_s)}`;
  return [line('time', bar(label, [[1 - share, 'busy'], [share, 'exposed']]), `${percent(share)} still`)];
}

function line(what, picture, value) {
  return el('p', { class: 'line' }, el('span', {}, what), picture, el('span', { class: 'value' }, value));
}
