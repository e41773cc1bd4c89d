// Starts the page: asks the node for its status every second and follows its events; begins
// again when the node is back. All that is shown is drawn from here.

import { beginAdmission, showAdmission } from './admission.js';
import { beginChart, showCurves } from './chart.js';
import { Curves, mostNew } from './curve.js';
import { at, say } from './dom.js';
import { Past, showPast } from './happened.js';
import { showMap } from './map.js';
import { Refused, follow, remembered, status, takeKey } from './node.js';
import { showRounds } from './rounds.js';
import { showRun, showState, stateOf } from './run.js';
import { showSchedule } from './schedule.js';
import { showSeats } from './seats.js';

const every = 1000; // milliseconds between two looks
const hiddenEvery = 10000; // where nobody sees the page

let curves = new Curves({ train: {}, held_out: {}, drift: {} });
let past = new Past({});
let changed = true; // the curves or the past
let drawnAt = 0;
let stream = new AbortController();

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function notice(text) {
  at('notice').hidden = text === '';
  say('notice', text);
}

// look asks for the status and shows it.
async function look() {
  try {
    const now = await status();
    now.roster ??= [];
    showState(...stateOf(now));
    notice(now.waiting ?? '');
    document.body.classList.remove('gone');
    showRun(now, curves.heldOut.at(-1));
    showRounds(now, curves.drift);
    showSeats(now);
    await showAdmission();
    await showMap(now);
    await showSchedule(now);
  } catch (failure) {
    lost(failure);
  }
}

// lost says that the node does not answer, and ends a stream that may hang.
function lost(failure) {
  stream.abort();
  document.body.classList.add('gone');
  if (failure instanceof Refused) {
    showState('ended', 'not this node’s key');
    notice('The node that answers here does not know the key of this page: open its page with `pnode watch`.');
    return;
  }
  const ending = past.ending();
  showState('ended', ending === '' ? 'the node is gone' : 'the node has ended');
  notice(ending === ''
    ? 'The node is gone: below is what it told last. Start it again in its folder with `pnode train --resume` or `pnode join`, and this page goes on by itself.'
    : `The node has ended: ${ending}.`);
}

// attend follows events for as long as the page is open.
async function attend() {
  for (;;) {
    stream = new AbortController();
    try {
      const history = await remembered();
      curves = new Curves(history);
      past = new Past(history);
      changed = true;
      await follow(history.seq, stream.signal, take);
    } catch {
      // the next look says what is wrong
    }
    await pause(every);
  }
}

function take(event) {
  changed = true;
  if (event.kind !== 'step') {
    past.add(event);
    if (event.kind === 'outer') {
      curves.addOuter(event);
    }
    return;
  }
  curves.add(event);
  if (curves.fresh > mostNew) {
    stream.abort(); // what the node has is thinned out
  }
}

// draw shows what has changed, and ages that have.
function draw() {
  if (document.hidden || (!changed && Date.now() - drawnAt < 15 * every)) {
    return;
  }
  changed = false;
  drawnAt = Date.now();
  showCurves(curves);
  showPast(past);
}

async function start() {
  if (!takeKey()) {
    showState('ended', 'no key');
    notice('This page needs the key of its node: open it with `pnode watch`.');
    return;
  }
  beginChart();
  beginAdmission();
  window.addEventListener('hashchange', () => takeKey());
  new ResizeObserver(() => { changed = true; }).observe(at('loss'));
  document.addEventListener('visibilitychange', () => { changed = true; });
  setInterval(draw, every / 2);
  attend();
  for (;;) {
    await look();
    await pause(document.hidden ? hiddenEvery : every);
  }
}

start();
