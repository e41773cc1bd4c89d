// What happened, newest first. Checkpoints that follow each other are one line.

import { el, tell } from './dom.js';
import { ago, count } from './words.js';

const most = 256;

// kinds of events: the mark in front, and what stands there where there is no message.
const marks = {
  plan: 'plan', outer: 'outer step', schedule: 'schedule', checkpoint: 'saved', member: 'roster', state: 'this node',
  waiting: 'waiting', substitute: 'substitute', interruption: 'back', recovery: 'recovered', error: 'error', done: 'done', sample: 'sample',
};

// Past is what the page knows of it, oldest first.
export class Past {
  constructor(history) {
    this.list = (history.happened ?? []).map(({ time, event }) => ({ time: Date.parse(time), event }));
  }

  add(event) {
    if (event.kind === 'outer') { // of many that are like most, the newest of a plan is enough
      this.list = this.list.filter((old) => old.event.kind !== 'outer' || old.event.generation !== event.generation || !quiet(old.event));
    }
    this.list.push({ time: Date.now(), event });
    this.list.splice(0, this.list.length - most);
  }

  // ending is how the run ended, if it did.
  ending() {
    const last = this.list.findLast(({ event }) => event.kind === 'done');
    return last?.event.message ?? '';
  }
}

// quiet is an outer step in which all replicas counted, and none was far from the others.
function quiet(event) {
  return (event.outer?.replicas ?? []).every((part) => part.steps > 0 && !part.far);
}

export function showPast(past) {
  const lines = [];
  for (let i = past.list.length - 1; i >= 0; i--) {
    const { time, event } = past.list[i];
    let first = i;
    while (event.kind === 'checkpoint' && first > 0 && past.list[first - 1].event.kind === 'checkpoint') {
      first--;
    }
    lines.push(entry(time, event, past.list[first].event));
    i = first;
  }
  tell('happened', ...(lines.length > 0 ? lines : [el('li', { class: 'empty' }, 'Nothing yet.')]));
}

function entry(time, event, first) {
  const kind = marks[event.kind] ? event.kind : 'other';
  return el('li', { class: kind },
    el('time', { datetime: new Date(time).toISOString(), title: new Date(time).toLocaleString() }, ago(time)),
    el('span', { class: 'mark' }, marks[event.kind] ?? event.kind),
    text(event, first));
}

function text(event, first) {
  if (event.kind === 'checkpoint') {
    const steps = first === event ? `step ${count(event.step)}` : `steps ${count(first.step)} to ${count(event.step)}`;
    return el('span', {}, `checkpoint of ${steps}`);
  }
  if (event.kind === 'sample') {
    return el('pre', {}, event.message ?? '');
  }
  return el('span', {}, event.message ?? '');
}
