// What happened, and what the model wrote, newest first. Checkpoints that follow each other are one line.

import { at, el, tell } from './dom.js';
import { ago, count } from './words.js';

const most = 256;
const mostWritten = 32;

// kinds of events: the mark in front, and what stands there where there is no message.
const marks = {
  plan: 'plan', outer: 'outer step', schedule: 'schedule', checkpoint: 'saved', member: 'roster', state: 'this node',
  waiting: 'waiting', substitute: 'substitute', interruption: 'back', recovery: 'recovered', warning: 'warning', error: 'error', done: 'done',
};

// Past is what the page knows of it, oldest first.
export class Past {
  constructor(history) {
    const all = (history.happened ?? []).map(({ time, event }) => ({ time: Date.parse(time), event }));
    this.list = all.filter(({ event }) => event.kind !== 'sample');
    this.written = all.filter(({ event }) => event.kind === 'sample');
  }

  add(event) {
    if (event.kind === 'sample') {
      this.written.push({ time: Date.now(), event });
      this.written.splice(0, this.written.length - mostWritten);
      return;
    }
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
  at('writes').hidden = past.written.length === 0;
  tell('written', ...past.written.toReversed().map(({ time, event }) => el('li', {},
    when(time),
    el('span', { class: 'mark' }, `step ${count(event.step)}`),
    el('pre', {}, event.message ?? ''))));
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
    when(time),
    el('span', { class: 'mark' }, marks[event.kind] ?? event.kind),
    text(event, first));
}

function when(time) {
  return el('time', { datetime: new Date(time).toISOString(), title: new Date(time).toLocaleString() }, ago(time));
}

function text(event, first) {
  if (event.kind === 'checkpoint') {
    const steps = first === event ? `step ${count(event.step)}` : `steps ${count(first.step)} to ${count(event.step)}`;
    return el('span', {}, `checkpoint of ${steps}`);
  }
  return el('span', {}, event.message ?? '');
}
