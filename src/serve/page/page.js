'use strict';
// A chat with the server of this page, and its gauges. Text from the network is never inserted as HTML.

const byId = id => document.getElementById(id);

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// ---- The API ----

const kKey = 'fathom.api_key';  // in sessionStorage, once the server has asked for a key

function headers() {
  const key = sessionStorage.getItem(kKey);
  return key ? {Authorization: 'Bearer ' + key} : {};
}

// An error of the server; `message` is for display.
class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function refusalOf(response) {
  let said = '';
  try {
    const body = await response.json();
    said = String(body.error?.message ?? body.message ?? '');
  } catch { /* no JSON: the status is enough */ }
  const wait = Number(response.headers.get('Retry-After'));
  const later = wait > 0 ? `Try again in ${wait} s.` : 'Try again in a moment.';
  const words = {
    401: 'The server wants an API key, or another one than it was given.',
    404: 'The server does not know this model or address.',
    413: 'The conversation is too long for the server. Start a new chat.',
    429: `The server is full: too many requests are waiting. ${later}`,
    503: `The server takes no requests now: it is starting or shutting down. ${later}`,
  }[response.status] ?? (response.status < 500 ? 'The server did not accept the request.' : 'The server failed.');
  return new Refusal(said ? `${words} It says: ${said}` : `${words} (HTTP ${response.status})`, response.status);
}

function eventOf(data) {
  let event = null;
  try {
    event = JSON.parse(data);
  } catch { /* reported below */ }
  if (!event) throw new Refusal('The server sent something that is no answer.');
  if (event.error) throw new Refusal(`The server gave up: ${event.error.message}`);
  return event;
}

// The JSON of each event of a stream, up to [DONE].
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) throw new Refusal('The connection ended before the answer did.');
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data:')) continue;  // a ping comment, or the end of an event
        const data = line.slice(5).trim();
        if (data === '[DONE]') return;
        yield eventOf(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// ---- Number formats ----

function count(n) {
  if (n >= 99950) return (n / 1e6).toPrecision(3).replace(/\.?0+$/, '') + ' M';
  return n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString('en') : n.toPrecision(2);
}

function duration(ms) {
  if (ms < 10) return ms.toFixed(1) + ' ms';
  return ms < 1000 ? Math.round(ms) + ' ms' : (ms / 1000).toFixed(ms < 1e4 ? 2 : 1) + ' s';
}

function age(s) {
  for (const [unit, length] of [['d', 86400], ['h', 3600], ['min', 60]])
    if (s >= length) return `up ${Math.floor(s / length)} ${unit}`;
  return `up ${Math.floor(s)} s`;
}

// ---- Gauges ----

const kSamples = 60;  // of a sparkline, one each second

class Gauge {
  constructor(id, ceiling) {
    this.value = byId(id).querySelector('.value');
    this.note = byId(id).querySelector('.note');
    this.ceiling = ceiling;  // of the sparkline; none: the largest value shown
    this.samples = [];
    const svg = tag => document.createElementNS('http://www.w3.org/2000/svg', tag);
    this.line = svg('polyline');
    this.area = svg('polygon');
    const picture = svg('svg');
    picture.setAttribute('viewBox', `0 0 ${kSamples - 1} 20`);
    picture.setAttribute('preserveAspectRatio', 'none');
    picture.setAttribute('aria-hidden', 'true');
    picture.append(this.area, this.line);
    byId(id).append(picture);
  }

  show(number, text) {
    this.value.textContent = text;
    this.samples.push(number);
    if (this.samples.length > kSamples) this.samples.shift();
    if (this.samples.length < 2) return;
    const top = this.ceiling ?? Math.max(...this.samples, 1e-9);
    const first = kSamples - this.samples.length;
    const points = this.samples.map((s, i) => `${first + i},${(19 - 17 * Math.min(s / top, 1)).toFixed(2)}`).join(' ');
    this.line.setAttribute('points', points);
    this.area.setAttribute('points', `${first},20 ${points} ${kSamples - 1},20`);
  }
}

const gauges = {
  tokens: new Gauge('tokens'), ttft: new Gauge('ttft'), running: new Gauge('running'), waiting: new Gauge('waiting'),
  kv: new Gauge('kv', 1), prefix: new Gauge('prefix', 1),
};
const percent = share => (100 * share).toFixed(share > 0 && share < .0995 ? 1 : 0) + ' %';

let served = '';  // the model's name
let last = null;  // {stats, at} of the previous poll

function showStats(stats) {
  const at = performance.now();
  served = stats.model;
  byId('model').textContent = byId('model').title = stats.model;
  byId('uptime').textContent = age(stats.uptime_s);
  if (last && stats.generated_tokens >= last.stats.generated_tokens) {  // otherwise the server was restarted
    const rate = (stats.generated_tokens - last.stats.generated_tokens) / (at - last.at) * 1000;
    gauges.tokens.show(rate, count(rate));
  }
  gauges.tokens.note.textContent = `${count(stats.generated_tokens)} so far`;
  gauges.running.show(stats.running, count(stats.running));
  gauges.waiting.show(stats.waiting, count(stats.waiting));
  const used = stats.pages ? stats.pages_in_use / stats.pages : 0;
  gauges.kv.show(used, percent(used));
  gauges.kv.note.textContent = `of ${count(stats.pages)} pages`;
  if (stats.prefix_queried_tokens > 0) {
    const hits = stats.prefix_hit_tokens / stats.prefix_queried_tokens;
    gauges.prefix.show(hits, percent(hits));
  }
  if (typeof stats.ttft_p50_s === 'number')
    gauges.ttft.note.textContent = `server median ${duration(1000 * stats.ttft_p50_s)}`;
  last = {stats, at};
}

function showState(kind, words) {
  const state = byId('state');
  document.body.classList.toggle('stale', kind !== 'good');
  if (state.textContent === words) return;  // a screen reader announces every change of a live region
  state.className = kind;
  state.textContent = words;
}

let timer = 0;

async function poll() {
  clearTimeout(timer);
  timer = 0;
  try {
    const response = await fetch('stats', {headers: headers(), signal: AbortSignal.timeout(5000)});
    if (response.ok) {
      showStats(await response.json());
      showState('good', 'Ready');
    } else if (response.status === 401) {
      askForKey();
      showState('wait', 'Needs an API key');
    } else {
      showState('wait', response.status === 503 ? 'Starting or stopping' : `Gauges: HTTP ${response.status}`);
    }
  } catch {
    showState('bad', 'Not reachable');
  }
  clearTimeout(timer);
  timer = document.visibilityState === 'visible' ? setTimeout(poll, 1000) : 0;
}

document.addEventListener('visibilitychange', () => {
  if (document.visibilityState !== 'visible') return;
  last = null;  // the rate since the last poll would include the time away
  poll();
});

// ---- The conversation ----

const log = byId('log'), box = byId('message');
const conversation = [];  // messages in the API's format
let running = null;       // the AbortController of the answer being written

// Runs `change`, and keeps the end visible where it was visible.
function atTheEnd(change) {
  const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (follow) log.scrollTop = log.scrollHeight;
}

function addTurn(kind, ...children) {
  const turn = element('div', {className: 'turn ' + kind}, ...children);
  byId('welcome').hidden = true;
  log.append(turn);
  log.scrollTop = log.scrollHeight;
  return turn;
}

// An answer on the page. Deltas arrive faster than frames, so they are collected and shown once each frame.
class Answer {
  constructor() {
    this.text = this.thought = '';
    this.parts = [];  // the elements that show the text, alternating prose and code
    this.frame = 0;
    this.turn = addTurn('answer writing', element('span', {className: 'unseen', textContent: 'Answer:'}));
    this.body = this.turn.appendChild(element('div', {className: 'text'}));
  }

  add(thought, text) {
    this.thought += thought;
    this.text += text;
    this.frame ||= requestAnimationFrame(() => this.show());
  }

  show() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    atTheEnd(() => {
      if (this.thought) this.showThought();
      // Lines of ``` fence code; everything else is shown as it is.
      this.text.split(/^```.*(?:\n|$)/m).forEach((part, i) => {
        this.parts[i] ??= this.body.appendChild(element(i % 2 ? 'pre' : 'p', {className: 'text', tabIndex: i % 2 ? 0 : -1}));
        const shown = i % 2 ? part.replace(/\n$/, '') : part.trim();
        if (this.parts[i].textContent !== shown) this.parts[i].textContent = shown;
        this.parts[i].hidden = !shown;
      });
    });
  }

  showThought() {
    if (!this.reasoning) {
      this.reasoning = element('details', {className: 'reasoning'}, element('summary'), element('p'));
      this.turn.insertBefore(this.reasoning, this.body);
    }
    this.reasoning.firstChild.textContent = this.text || !this.turn.classList.contains('writing') ? 'Reasoning' : 'Reasoning…';
    this.reasoning.lastChild.textContent = this.thought.trim();
  }

  end(facts) {
    this.turn.classList.remove('writing');
    this.show();
    if (!this.text && !this.thought && !facts.length) this.turn.remove();
    if (facts.length) atTheEnd(() => this.turn.append(element('p', {className: 'facts', textContent: facts.join(' · ')})));
  }
}

function settings() {
  const chosen = {};
  const temperature = byId('temperature').valueAsNumber, most = byId('max-tokens').valueAsNumber;
  if (!Number.isNaN(temperature)) chosen.temperature = temperature;
  if (!Number.isNaN(most)) chosen.max_completion_tokens = most;
  if (byId('effort').value) chosen.reasoning_effort = byId('effort').value;
  return chosen;
}

function showRunning(controller) {
  running = controller;
  byId('send').hidden = Boolean(controller);
  byId('stop').hidden = !controller;
  byId('anew').disabled = !conversation.length;
  log.setAttribute('aria-busy', String(Boolean(controller)));  // a screen reader waits for the whole answer
}

const kEnds = {length: 'cut at the most tokens', abort: 'stopped by the server', content_filter: 'cut by a filter'};

// The line below an answer: its length, its speed, and why it ended unless it ended by itself.
function factsOf({start, first, latest, pieces, usage, reason}) {
  const facts = [], tokens = usage?.completion_tokens ?? pieces;
  if (tokens > 0) facts.push(`${count(tokens)} ${tokens === 1 ? 'token' : 'tokens'}`);
  if (tokens > 1 && latest - first > 50) facts.push(`${count((tokens - 1) / (latest - first) * 1000)} tokens/s`);
  if (first) facts.push(`first after ${duration(first - start)}`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (cached > 0) facts.push(`${count(cached)} of ${count(usage.prompt_tokens)} prompt tokens from the cache`);
  if (reason) facts.push(reason);
  return facts;
}

// Requests an answer to the conversation, whose last message is the user's.
async function ask() {
  const controller = new AbortController(), answer = new Answer();
  const seen = {start: performance.now(), first: 0, latest: 0, pieces: 0, usage: null, reason: ''};
  let problem = null;
  showRunning(controller);
  try {
    const response = await fetch('v1/chat/completions', {
      method: 'POST',
      headers: {'Content-Type': 'application/json', ...headers()},
      body: JSON.stringify({...(served && {model: served}), messages: conversation, stream: true,
        stream_options: {include_usage: true}, ...settings()}),
      signal: controller.signal,
    });
    if (!response.ok) throw await refusalOf(response);
    for await (const event of eventsOf(response)) {
      seen.usage = event.usage ?? seen.usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      seen.reason = kEnds[choice.finish_reason] ?? seen.reason;
      const thought = choice.delta?.reasoning ?? choice.delta?.reasoning_content ?? '', text = choice.delta?.content ?? '';
      if (!thought && !text) continue;
      seen.latest = performance.now();
      ++seen.pieces;
      if (!seen.first) {
        seen.first = seen.latest;
        gauges.ttft.show(seen.first - seen.start, duration(seen.first - seen.start));
      }
      answer.add(thought, text);
    }
  } catch (error) {
    if (controller.signal.aborted) seen.reason = 'stopped';
    else if (error instanceof Refusal) problem = error;
    else problem = new Refusal('The server cannot be reached. Is it still running?');
  }
  answer.end(factsOf(seen));
  showRunning(null);
  if (!answer.turn.isConnected && answer.text) return;  // a new chat has begun since
  if (answer.text) conversation.push({role: 'assistant', content: answer.text});
  if (problem) showProblem(problem);
  showRunning(null);
}

function showProblem(problem) {
  const parts = [element('p', {textContent: problem.message})];
  // After half an answer the last message is the answer: there is no question to repeat.
  if (problem.status !== 401 && conversation.at(-1)?.role === 'user') {
    const again = element('button', {type: 'button', textContent: 'Try again'});
    again.addEventListener('click', () => {
      if (running) return;
      box.focus();
      askAgain();
    });
    parts.push(again);
  }
  addTurn('problem', ...parts);
  if (problem.status === 401) askForKey();
}

function askAgain() {
  for (const turn of log.querySelectorAll('.problem')) turn.remove();
  ask();
}

function askForKey() {
  if (!byId('key-form').hidden) return;
  byId('key-form').hidden = false;
  byId('key').focus();
}

byId('key-form').addEventListener('submit', event => {
  event.preventDefault();
  sessionStorage.setItem(kKey, byId('key').value.trim());
  byId('key').value = '';
  byId('key-form').hidden = true;
  box.focus();
  poll();
  if (!running && conversation.at(-1)?.role === 'user') askAgain();
});

byId('composer').addEventListener('submit', event => {
  event.preventDefault();
  const text = box.value.trim();
  if (running || !text) return;
  box.value = '';
  conversation.push({role: 'user', content: text});
  addTurn('user', element('span', {className: 'unseen', textContent: 'You:'}), element('p', {textContent: text}));
  ask();
});

box.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId('composer').requestSubmit();
});

document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && running && !event.isComposing) running.abort();
});

byId('stop').addEventListener('click', () => {
  running?.abort();
  box.focus();
});

byId('anew').addEventListener('click', () => {
  running?.abort();
  conversation.length = 0;
  for (const turn of log.querySelectorAll('.turn')) turn.remove();
  byId('welcome').hidden = false;
  byId('anew').disabled = true;
  box.focus();
});

poll();
box.focus();
