// The requests to the node that served this page, and its stream of events.

// Refused is thrown where the key does not open the node; anything else that is thrown means
// that the node does not answer.
export class Refused extends Error {}

const kept = 'pnode-key';
const patience = 15000; // milliseconds for an answer
const longestLine = 1 << 20;

// takeKey finds the key behind the # of the URL and takes it out of sight; a reload finds it
// where this tab, and no other page, keeps it.
export function takeKey() {
  const key = location.hash.slice(1);
  if (key !== '') {
    sessionStorage.setItem(kept, key);
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem(kept);
}

async function ask(path, signal) {
  const answer = await fetch(`/v1/${path}`, {
    headers: { Authorization: `Bearer ${takeKey()}` },
    cache: 'no-store',
    credentials: 'omit',
    redirect: 'error',
    signal,
  });
  if (answer.status === 401 || answer.status === 403) {
    throw new Refused();
  }
  if (!answer.ok) {
    throw new Error(`${path}: ${answer.status}`);
  }
  return answer;
}

export async function status() {
  return (await ask('status?brief', AbortSignal.timeout(patience))).json();
}

export async function remembered() {
  return (await ask('history', AbortSignal.timeout(patience))).json();
}

export async function profiles() {
  return (await ask('profiles?brief', AbortSignal.timeout(patience))).json();
}

export async function schedule() {
  return (await ask('schedule.svg', AbortSignal.timeout(patience))).text();
}

// follow hands events on as they come, until the node ends the stream, the line breaks or
// signal says so.
export async function follow(after, signal, onEvent) {
  const answer = await ask(`events?after=${after}`, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    if (rest.length > longestLine) {
      throw new Error('an endless event');
    }
    lines.forEach((line) => onEvent(JSON.parse(line)));
  }
}
