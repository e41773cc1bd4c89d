// What happened, newest first. Checkpoints that follow each other are one line.

import { el, tell } from './dom.js';
import { ago, count } from './words.js';

const most = 256;

// kinds of events: the mark in front, and what stands there where there is no message.
const marks = {
  plan: 'plan', schedule: 'schedule', checkpoint: 'saved', member: 'roster', state: 'this node',
  waiting: 'waiting', substitute: 'substitute', interruption: 'back', recovery: 'recovered', error: 'error', done: 'done', sample: 'sample',
};

// Past is what the page knows of it, oldest first.
export class Past {
  constructor(history) {
    this.list = (history.happened ?? []).map(({ time, event }) => ({ time: Date.parse(time), event }));
  }

  add(event) {
    this.list.push({ time: Date.now(), event });
    this.list.splice(0, this.list.length - most);
  }

  // ending is how the run ended, if it did.
  ending() {
    const last = this.list.findLast(({ event }) => event.kind === 'done');
    return last?.event.message ?? '';
  }
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
