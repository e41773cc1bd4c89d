// The picture of a step as the node draws it. It comes as XML, is looked through, and stands in
// a shadow tree of its own, so that its style and the page's leave each other alone.

import { at, el, tell } from './dom.js';
import { schedule } from './node.js';
import { time } from './words.js';

const again = 15000; // milliseconds until a picture of the same plan is asked for once more

let shown = '';
let askedAt = -Infinity;

// showSchedule brings the picture of the plan that runs; one that cannot be had leaves the page
// as it is.
export async function showSchedule(status) {
  showWords(status);
  const about = status.about;
  // A step that was measured changes what the simulator starts from.
  const plan = `${status.generation} ${about?.schedule ?? ''} ${about?.course ?? ''} ${about?.step_ms > 0}`;
  const now = performance.now();
  if (!about?.schedule || document.hidden || (plan === shown && now - askedAt < again)) {
    return;
  }
  shown = plan;
  askedAt = now;
  try {
    place(await schedule());
  } catch {
    shown = '';
  }
}

function showWords(status) {
  const about = status.about;
  if (!about?.schedule) {
    tell('course', 'no plan yet');
    return;
  }
  const by = about.step_ms ? 'with the times that its stages and links show' : 'with the profiles of its devices and links';
  const took = about.step_ms ? `a step takes ${time(about.step_ms)}; ` : '';
  const validated = status.post_validation ? `; ${status.post_validation.text}` : '';
  tell('course', `${about.course}: ${took}${time(about.predicted_ms ?? 0)} simulated ${by}${validated}`);
  const reasons = status.reasons ?? [];
  const hints = status.hints ?? [];
  at('why').hidden = reasons.length === 0;
  at('help').hidden = hints.length === 0;
  tell('hints', ...hints.map((hint) => el('li', {}, hint)));
  tell('reasons', ...reasons.map((reason) => el('li', {}, reason)));
}

// allowed are the elements of a picture; one with any other is not shown.
const allowed = new Set(['svg', 'defs', 'pattern', 'marker', 'rect', 'path', 'text', 'title', 'g']);

// sheets are the style of a picture, which its elements cannot have under the page's policy.
const sheets = /<style>([^<]*)<\/style>/g;

function place(xml) {
  const style = new CSSStyleSheet();
  style.replaceSync([...xml.matchAll(sheets)].map((sheet) => sheet[1]).join('\n'));
  const picture = new DOMParser().parseFromString(xml.replaceAll(sheets, ''), 'image/svg+xml').documentElement;
  const parts = [picture, ...picture.querySelectorAll('*')];
  if (!parts.every((part) => allowed.has(part.localName) && [...part.attributes].every(harmless))) {
    return;
  }
  const room = new CSSStyleSheet();
  const least = picture.width.baseVal.value / 10; // as large as it was drawn: what is wider scrolls
  room.replaceSync(`:host{display:block} svg{display:block;width:100%;min-width:${least}rem;height:auto}`);
  const box = at('picture');
  const tree = box.shadowRoot ?? box.attachShadow({ mode: 'open' });
  tree.adoptedStyleSheets = [style, room];
  tree.replaceChildren(document.adoptNode(picture));
}

// harmless attributes run nothing and lead nowhere.
function harmless(attribute) {
  return !attribute.localName.startsWith('on') && attribute.localName !== 'href' && attribute.localName !== 'src';
}
