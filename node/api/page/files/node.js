// The requests to the node that served this page, and its stream of events.

// Refused is thrown where the key does not open the node; anything else that is thrown means
// that the node does not answer.
export class Refused extends Error {}

const kept = 'pnode-key';
const keptAdmission = 'pnode-admission-key';
const patience = 15000; // milliseconds for an answer
const longPatience = 130000; // for one that the run's voters decide on
const longestLine = 1 << 20;

// takeKey finds the key behind the # of the URL and takes it out of sight; a reload finds it
// where this tab, and no other page, keeps it. After a dot is the key that lets machines in, which not every page has.
export function takeKey() {
  const [key, admissionKey] = location.hash.slice(1).split('.');
  if (key !== '') {
    sessionStorage.setItem(kept, key);
    sessionStorage.removeItem(keptAdmission);
    if (admissionKey) {
      sessionStorage.setItem(keptAdmission, admissionKey);
    }
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem(kept);
}

// mayAdmit reports whether this page has the key that lets machines in.
export function mayAdmit() {
  return sessionStorage.getItem(keptAdmission) !== null;
}

async function request(path, key, signal, body) {
  const answer = await fetch(`/v1/${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { Authorization: `Bearer ${key}` },
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: 'no-store',
    credentials: 'omit',
    redirect: 'error',
    signal,
  });
  if (answer.status === 401 || answer.status === 403) {
    throw new Refused('the node does not know the key of this page any more: open it again with `pnode watch`');
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.error ?? `${path}: ${answer.status}`);
  }
  return answer;
}

function ask(path, signal) {
  return request(path, takeKey(), signal);
}

// letIn asks about who is let in, or with a body does something about it.
async function letIn(path, wait, body) {
  return (await request(`admission${path}`, sessionStorage.getItem(keptAdmission), AbortSignal.timeout(wait), body)).json();
}

// admission says whether the node lets machines in, and which ask.
export function admission() {
  return letIn('', patience);
}

// admit lets the machine in that shows a code; another code refuses all that ask.
export function admit(code) {
  return letIn('/admit', longPatience, { code });
}

// refuse tells all that began to ask up to a time that they are not let in.
export function refuse(until) {
  return letIn('/admit', longPatience, { refuse: true, until });
}

// invite makes an invite for so many seconds and nodes.
export function invite(seconds, uses) {
  return letIn('/invite', longPatience, { ttl_s: seconds, uses });
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
