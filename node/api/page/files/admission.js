// Who is let in: an invite with its code for a camera, and machines of the local network that ask. Only the page that `pnode watch`
// opened on this machine has the key for it; without that there is nothing of this.

import { at, el, say, shape, tell } from './dom.js';
import { Refused, admission, admit, invite, mayAdmit, refuse } from './node.js';

// newest is when the last of those who are shown began to ask: who came after it is not refused unseen.
let newest;

// beginAdmission has the forms do what they say.
export function beginAdmission() {
  at('admit').addEventListener('submit', (event) => sends(event, async () => {
    const { done } = await admit(at('digits').value);
    at('digits').value = '';
    say('admitted', `${done}.`);
  }));
  at('refuse').addEventListener('click', (event) => sends(event, async () => {
    const { done } = await refuse(newest);
    at('digits').value = '';
    say('admitted', `${done.replaceAll('\n', '. ')}.`);
  }));
  at('inviting').addEventListener('submit', (event) => sends(event, async () => {
    showInvite(await invite(Number(at('ttl').value), Number(at('uses').value)));
  }));
  at('copy').addEventListener('click', copy);
  at('hide').addEventListener('click', hideInvite);
}

// showAdmission says who asks, and what this node may do about it.
export async function showAdmission() {
  at('admission').hidden = !mayAdmit();
  if (!mayAdmit()) {
    return;
  }
  let now;
  try {
    now = await admission();
  } catch (failure) {
    if (failure instanceof Refused) { // its key is of the node's start before
      offers('The node was started again since this page was opened: `pnode watch` opens one that lets machines in.', false, []);
    }
    return;
  }
  const refused = now.refused ? `${now.refused}.` : '';
  const lan = now.lan ? '' : 'Machines of the local network can ask to be let in where this node is started with --lan (`pnode train --resume --lan`).';
  offers(refused || lan, refused === '', refused === '' ? now.newcomers : []);
}

// offers shows the forms that are of use, and a text about the others.
function offers(text, may, asking) {
  say('admits', text);
  at('admits').hidden = text === '';
  at('inviting').hidden = !may;
  at('admit').hidden = asking.length === 0;
  newest = asking.at(-1)?.since ?? newest;
  say('refuse', asking.length > 1 ? 'Refuse all' : 'Refuse');
  const names = asking.map((newcomer) => `${newcomer.name} (${newcomer.address})`);
  say('asking', asking.length === 0 ? '' : `${names.join(', ')} ${asking.length === 1 ? 'asks' : 'ask'} to join. If it is yours, enter the six digits that its own screen shows: other digits refuse all that ask.`);
}

// sends carries out what a form is for, once at a time, and says why it was refused.
async function sends(event, what) {
  event.preventDefault();
  const button = event.submitter ?? event.target.closest('button') ?? event.target.querySelector('button');
  button.disabled = true;
  say('admitted', '');
  try {
    await what();
  } catch (failure) {
    say('admitted', `Not done: ${failure.message || 'the node does not answer'}.`);
  } finally {
    button.disabled = false;
  }
}

function showInvite(made) {
  at('invite').value = made.invite;
  const until = new Date(made.until);
  tell('terms', `${made.uses === 1 ? 'One node' : `${made.uses} nodes`} may join with it, until ${until.toLocaleString()}: `, el('code', {}, 'pnode join INVITE'),
    '. Whoever reads it can use it; ', el('code', {}, 'pnode revoke INVITE'), ' ends it.');
  tell('code', drawn(made.code));
  at('made').hidden = false;
  at('invite').focus();
  at('invite').select();
}

// drawn draws a code's rows, dark on light whatever the page's colours are.
function drawn(rows) {
  const side = rows.length;
  const runs = rows.flatMap((row, y) => [...row.matchAll(/1+/g)].map((run) => `M${run.index} ${y}h${run[0].length}v1h-${run[0].length}z`));
  return shape('svg', { viewBox: `0 0 ${side} ${side}`, role: 'img', 'aria-label': 'QR code of the invite', 'shape-rendering': 'crispEdges' },
    shape('rect', { width: side, height: side, class: 'light' }), shape('path', { d: runs.join(''), class: 'dark' }));
}

async function copy() {
  at('invite').select();
  try {
    await navigator.clipboard.writeText(at('invite').value);
    say('admitted', 'The invite is copied.');
  } catch {
    say('admitted', 'The browser does not let pages copy: the invite is selected, copy it by hand.');
  }
}

function hideInvite() {
  at('made').hidden = true;
  at('invite').value = '';
  tell('code');
  say('admitted', '');
  at('uses').focus();
}
