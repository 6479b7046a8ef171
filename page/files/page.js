// The page of Weir: it is sent a snapshot every second and shows it.
'use strict';

const kept = 120; // seconds that charts show
const groups = ['authority', 'stand-in', 'shares'];
const words = {
  owner: 'owner, here', forwarded: 'owner, asked', relayed: 'owner, asked through another', stand_in: 'stand-in',
  budget: 'a share of the limit', failed_open: 'failed open', failed_closed: 'failed closed', pushback: 'a denial remembered', leased: 'a lease',
};
const id = name => document.getElementById(name);
const number = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const clock = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit'});

// set changes a text only where it differs: what stays the same is not announced again.
function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function attribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function make(name, attributes, ...children) {
  const svg = ['path', 'g', 'text', 'pattern', 'rect', 'defs', 'title'].includes(name);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) attribute(element, key, value);
  element.append(...children);
  return element;
}

// rows keeps one row for each item, so that focus stays where it is.
function rows(body, items, keyOf, create, fill) {
  const old = new Map([...body.children].map(row => [row.dataset.key, row]));
  let at = body.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let row = old.get(key);
    if (row) old.delete(key);
    else {
      row = create(item);
      row.dataset.key = key;
    }
    if (row === at) at = at.nextElementSibling;
    else body.insertBefore(row, at);
    fill(row, item);
  }
  for (const row of old.values()) row.remove();
}

function percent(part, all) {
  if (!all) return '–';
  const p = 100 * part / all;
  if (p > 0 && p < 1) return '< 1 %';
  if (p < 100 && p > 99) return '> 99 %';
  return number.format(p) + ' %';
}

function perSecond(n) {
  if (n > 0 && n < 1) return '< 1';
  return number.format(n);
}

function duration(us) {
  if (us < 0) return '> 1 s';
  if (us >= 1e6) return us / 1e6 + ' s';
  if (us >= 1e3) return us / 1e3 + ' ms';
  return us + ' µs';
}

const plural = (n, one) => n === 1 ? '1 ' + one : number.format(n) + ' ' + one + 's';
const list = names => names.length < 2 ? names.join('') : names.slice(0, -1).join(', ') + ' and ' + names[names.length - 1];

// sums is allowed and denied by whom, of a list of rates.
function sums(rates) {
  const of = {};
  for (const by of groups) of[by] = {allowed: 0, denied: 0};
  for (const r of rates || []) {
    of[r.by].allowed += r.allowed;
    of[r.by].denied += r.denied;
  }
  of.all = groups.reduce((n, by) => n + of[by].allowed + of[by].denied, 0);
  return of;
}
const both = o => o.allowed + o.denied;

// --- the state at a glance

function headline(s, of) {
  const missing = s.members.filter(m => m.health === 'missing');
  const changing = s.members.filter(m => m.health === 'changing');
  const sides = new Set(s.members.filter(m => m.side).map(m => m.side)).size;
  const here = plural(s.members.length, 'member');
  let level = 'good', text = s.members.length === 1 ? 'The one member serves' : `All ${here} serve`;
  if (sides > 1) {
    level = 'bad';
    text = `Split into ${sides} sides: ` + list([...new Set(s.members.filter(m => m.side).map(m => m.side))].sort()
      .map(side => list(s.members.filter(m => m.side === side).map(m => m.name))).map(names => `[${names}]`));
    const gone = missing.filter(m => !m.side);
    if (gone.length) text += `; missing: ${list(gone.map(m => `${m.name} (${m.state})`))}`;
  } else if (missing.length) {
    level = 'bad';
    text = `${missing.length} of ${here} ${missing.length === 1 ? 'is' : 'are'} missing: ` + list(missing.map(m => `${m.name} (${m.state})`));
  } else if (changing.length) {
    level = 'warn';
    text = `${list(changing.map(m => `${m.name} is ${m.state}`))}, ${s.members.length - changing.length} of ${here} serve`;
  } else if (of.all && both(of['stand-in']) + both(of.shares) > 0 || s.outage) {
    level = 'warn';
    text += ', and some checks are decided without authority';
  }
  return {level, text, key: level + missing.map(m => m.id) + changing.map(m => m.id) + sides};
}

let announced = '', saidAt = 0;

function showBanner(s) {
  const of = sums(s.checks), h = headline(s, of);
  attribute(id('banner'), 'data-level', h.level);
  set(id('sign'), {good: '✓', warn: '!', bad: '✕'}[h.level]);
  set(id('headline'), h.text);
  let more = s.checks ? `${perSecond(of.all)} checks per second, ${percent(groups.reduce((n, by) => n + of[by].denied, 0), of.all)} denied.` : '';
  if (s.outage) {
    more += ` Since ${clock.format(s.outage.since)}, ${number.format(s.outage.decisions)} checks without authority`;
    more += s.outage.missing.length ? `, for want of ${list(s.outage.missing)}.` : '.';
  }
  set(id('subline'), more);
  for (const by of groups) set(id('by-' + by), s.checks ? percent(both(of[by]), of.all) : '–');
  document.title = `${{good: '✓', warn: '!', bad: '✕'}[h.level]} ${s.name} – Weir`;
  // Spoken when it has changed, and not more often than once in five seconds.
  if (h.key !== announced && Date.now() - saidAt > 5000) {
    announced = h.key;
    saidAt = Date.now();
    set(id('said'), h.text);
  }
}

// --- members

function arc(from, to) {
  const point = (angle, r) => `${(220 + r * Math.sin(angle)).toFixed(2)} ${(160 - r * Math.cos(angle)).toFixed(2)}`;
  const a = 2 * Math.PI * from, b = 2 * Math.PI * Math.min(to, from + 0.9999), large = to - from > 0.5 ? 1 : 0;
  return `M${point(a, 118)} A118 118 0 ${large} 1 ${point(b, 118)} L${point(b, 76)} A76 76 0 ${large} 0 ${point(a, 76)} Z`;
}

function showRing(members) {
  const owners = members.filter(m => m.share > 0);
  let from = 0, even = false;
  rows(id('arcs'), owners, m => m.id, () => make('g', {}, make('path', {class: 'arc'}), make('text', {class: 'label'})), (g, m) => {
    const [path, label] = g.children, middle = 2 * Math.PI * (from + m.share / 2);
    attribute(path, 'd', arc(from, from + m.share));
    attribute(path, 'data-health', m.health);
    attribute(path, 'class', even ? 'arc even' : 'arc');
    const aside = Math.sin(middle);
    attribute(label, 'text-anchor', Math.abs(aside) < 0.3 ? 'middle' : aside > 0 ? 'start' : 'end');
    attribute(label, 'x', (220 + 126 * aside).toFixed(1));
    attribute(label, 'y', (165 - 132 * Math.cos(middle)).toFixed(1));
    const short = m.name.length > 11 ? m.name.slice(0, 10) + '…' : m.name;
    set(label, owners.length > 12 ? '' : (m.health === 'missing' ? '✕ ' : '') + short);
    from += m.share;
    even = !even;
  });
  const serving = members.filter(m => m.health === 'serving').length;
  set(id('ring-count'), `${serving} of ${members.length}`);
  set(id('ring-word'), members.length === 1 ? 'member serves' : 'members serve');
  set(id('ring-desc'), owners.map(m => `${m.name} owns ${percent(m.share, 1)}, ${m.state}`).join('; ') + '.');
}

function memberRow(m) {
  const cell = (label, classes) => make('td', {role: 'cell', 'data-label': label, class: classes});
  return make('tr', {role: 'row'},
    make('th', {scope: 'row', role: 'rowheader'}, make('span'), make('span', {class: 'small'})),
    make('td', {role: 'cell'}, make('span', {class: 'state'}), make('span', {class: 'small'})),
    cell('owns', 'number'), make('td', {role: 'cell', class: 'number', 'data-label': 'checks/s'}, make('span'), make('span', {class: 'small'})),
    make('td', {role: 'cell', class: 'wide'}, make('div', {class: 'actions', role: 'group', 'aria-label': `Faults of ${m.name}`})));
}

function showMember(row, m) {
  const [name, state, owns, checks, actions] = row.children;
  set(name.children[0], m.name);
  set(name.children[1], m.id !== m.name ? m.id : m.addr);
  set(state.children[0], m.state);
  attribute(state.children[0], 'data-health', m.health);
  set(state.children[1], [m.side ? `side ${m.side}` : '', m.note, m.region, m.id !== m.name ? m.addr : ''].filter(Boolean).join(', '));
  set(owns, m.share > 0 ? percent(m.share, 1) : 'nothing');
  const of = sums(m.checks);
  set(checks.children[0], m.checks ? perSecond(of.all) : '–');
  const without = ['stand-in', 'shares'].filter(by => both(of[by]) > 0).map(by => `${perSecond(both(of[by]))} by ${by}`).join(', ');
  set(checks.children[1], without);
  attribute(checks.children[1], 'class', without ? 'small elsewhere' : 'small');
  actions.hidden = !m.actions;
  const group = actions.firstElementChild, all = m.actions || [];
  while (group.children.length < all.length) {
    const button = make('button', {type: 'button'});
    button.addEventListener('click', () => act(row.dataset.key, button));
    group.append(button);
  }
  while (group.children.length > all.length) group.lastElementChild.remove();
  all.forEach((action, i) => {
    const button = group.children[i];
    const label = action.name[0].toUpperCase() + action.name.slice(1);
    set(button, label);
    button.dataset.action = action.name;
    attribute(button, 'aria-label', `${label} ${m.name}`);
    attribute(button, 'aria-disabled', action.off ? 'true' : null);
  });
}

async function act(member, button) {
  if (button.getAttribute('aria-disabled') === 'true') return;
  const action = button.dataset.action;
  try {
    const answer = await fetch('act', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({member, action})});
    set(id('failed'), answer.ok ? '' : `Not done: ${(await answer.text()).trim()}`);
  } catch {
    set(id('failed'), `Not done: ${action} ${member}: nobody answers`);
  }
}

function showMembers(s) {
  showRing(s.members);
  id('actions-heading').hidden = !s.members.some(m => m.actions);
  rows(id('members').tBodies[0], s.members, m => m.id, memberRow, showMember);
}

// --- charts: 640 by 190, the newest second at the right

const wide = 640, high = 190;
const past = [], latencies = [], watched = [];

function remember(series, at, value) {
  series.push({at, value});
  while (series.length && (series.length > 2 * kept || series[0].at < at - kept * 1000)) series.shift();
}

const x = (at, now) => (wide * (1 - (now - at) / (kept * 1000))).toFixed(1);

// most rounds up to 1, 2 or 5 times a power of ten.
function most(value) {
  if (!(value > 0)) return 1;
  const power = Math.pow(10, Math.floor(Math.log10(value)));
  return [1, 2, 5, 10].map(n => n * power).find(n => n >= value * 0.999);
}

function hatched(chart) {
  if (chart.querySelector('defs')) return;
  chart.append(make('defs', {}, ...groups.map(by => make('pattern', {
    id: 'denied-' + by, width: 8, height: 8, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)', 'data-by': by,
  }, make('rect', {class: 'hatch-back', width: 8, height: 8}), make('path', {class: 'hatch-line', d: 'M1 0V8'})))));
}

function path(chart, name, attributes) {
  let p = chart.querySelector(`[data-name="${name}"]`);
  if (!p) chart.append(p = make('path', {'data-name': name, ...attributes}));
  return p;
}

function showChecks(s) {
  rows(id('checks').tBodies[0], s.checks || [], r => r.source,
    () => make('tr', {}, make('th', {scope: 'row'}, make('span', {class: 'source'})), make('td', {class: 'number'}), make('td', {class: 'number'})),
    (row, r) => {
      set(row.children[0].firstChild, words[r.source] || r.source);
      attribute(row.children[0].firstChild, 'data-by', r.by);
      set(row.children[1], perSecond(r.allowed));
      set(row.children[2], perSecond(r.denied));
    });
  if (!s.checks) return;
  remember(past, s.at, sums(s.checks));
  const top = most(Math.max(...past.map(p => p.value.all)));
  const chart = id('checks-chart');
  hatched(chart);
  let below = past.map(() => 0);
  for (const by of groups) {
    for (const outcome of ['allowed', 'denied']) {
      const above = past.map((p, i) => below[i] + p.value[by][outcome]);
      const line = values => past.map((p, i) => `${x(p.at, s.at)} ${(high * (1 - values[i] / top)).toFixed(1)}`);
      const p = path(chart, by + outcome, outcome === 'allowed' ? {class: 'area', 'data-by': by} : {class: 'area', fill: `url(#denied-${by})`});
      attribute(p, 'd', past.length < 2 ? '' : 'M' + line(above).concat(line(below).reverse()).join('L') + 'Z');
      below = above;
    }
  }
  set(id('checks-most'), `height: ${number.format(top)}/s`);
}

function showLatency(s) {
  rows(id('latency').tBodies[0], s.latency || [], l => l.source,
    () => make('tr', {}, make('th', {scope: 'row'}, make('span', {class: 'source'})), make('td', {class: 'number'}), make('td', {class: 'number'})),
    (row, l) => {
      set(row.children[0].firstChild, words[l.source] || l.source || 'all together');
      attribute(row.children[0].firstChild, 'data-by', l.by || 'all');
      set(row.children[1], duration(l.p50_us));
      set(row.children[2], duration(l.p99_us));
    });
  if (!s.latency || !s.latency.length) return;
  const all = which => s.latency[0][which] < 0 ? 2e6 : s.latency[0][which];
  remember(latencies, s.at, {p50: all('p50_us'), p99: all('p99_us')});
  const chart = id('latency-chart');
  const low = 0.1, top = Math.max(4, Math.ceil(Math.log10(Math.max(...latencies.map(p => p.value.p99))))); // powers of ten of microseconds
  for (const which of ['p99', 'p50']) {
    const line = latencies.map(p => `${x(p.at, s.at)} ${(high * (1 - (Math.log10(p.value[which]) - low) / (top - low))).toFixed(1)}`);
    attribute(path(chart, which, {class: which === 'p50' ? 'stroke dashed' : 'stroke'}), 'd', line.length < 2 ? '' : 'M' + line.join('L'));
  }
  set(id('latency-most'), `height: ${duration(Math.pow(10, top))}, logarithmic`);
}

// --- one key

function showKey(w) {
  if (w.error) set(id('key-desc'), w.error);
  const facts = w.error ? [['Cannot be watched', w.error]] : [
    ['Used now', `${number.format(w.used)} of ${number.format(w.grants)}${w.per_ms ? ` per ${period(w.per_ms)}` : ''}`],
    ...w.counted < 0 ? [] : [['Granted', `${number.format(w.counted)} to all clients together in that time`]],
    ['Decided by', `${words[w.source] || w.source}${w.by === 'authority' ? '' : ', not by authority'}`],
    ['Owner', w.owner || 'not known'],
  ];
  rows(id('watched').tBodies[0], facts, f => f[0], () => make('tr', {}, make('th', {scope: 'row'}), make('td')), (row, f) => {
    set(row.children[0], f[0]);
    set(row.children[1], f[1]);
  });
  id('key-none').hidden = true;
  id('counted-legend').hidden = !(w.counted >= 0);
  if (w.error) return;
  remember(watched, w.at, w);
  const chart = id('key-chart'), of = p => p.value;
  const top = most(Math.max(1, ...watched.map(p => Math.max(of(p).used, of(p).grants, of(p).counted))) * 1.05);
  const line = which => watched.map(p => `${x(p.at, w.at)} ${(high * (1 - Math.max(0, of(p)[which]) / top)).toFixed(1)}`);
  const draw = (name, attributes, d) => attribute(path(chart, name, attributes), 'd', watched.length < 2 ? '' : d);
  draw('used', {class: 'area', 'data-by': 'authority'}, `M${x(watched[0].at, w.at)} ${high}L${line('used').join('L')}L${wide} ${high}Z`);
  draw('grants', {class: 'stroke limit'}, 'M' + line('grants').join('L'));
  draw('counted', {class: 'stroke'}, w.counted < 0 ? '' : 'M' + line('counted').join('L'));
  set(id('key-most'), `height: ${number.format(top)}`);
  set(id('key-desc'), `${w.key} has used ${w.used} of ${w.grants} of ${w.limit}.`);
}

function period(ms) {
  for (const [unit, size] of [['h', 3600e3], ['min', 60e3], ['s', 1e3]]) {
    if (ms >= size && ms % size === 0) return ms === size ? unit : `${ms / size} ${unit}`;
  }
  return `${ms} ms`;
}

let chosen = null; // the limit and key that are watched, null for what the server has

function watch(limit, key) {
  chosen = {limit, key};
  watched.length = 0;
  for (const p of id('key-chart').querySelectorAll('path')) p.remove();
  id('watched').tBodies[0].replaceChildren();
  id('limit').value = limit;
  id('key').value = key;
  connect();
}

id('watch').addEventListener('submit', event => {
  event.preventDefault();
  watch(id('limit').value, id('key').value);
});

function showLimits(s) {
  const select = id('limit'), names = [...select.options].map(o => o.value);
  if (names.join('\n') !== s.limits.join('\n')) {
    const was = select.value;
    select.replaceChildren(...s.limits.map(name => make('option', {value: name}, name)));
    if (s.limits.includes(was)) select.value = was;
  }
  id('watch').hidden = !s.limits.length;
  if (!s.limits.length && !chosen) set(id('key-desc'), 'This node has no rules, so no key can be watched.');
  if (s.watch && !chosen) {
    chosen = s.watch;
    select.value = chosen.limit;
    id('key').value = chosen.key;
  }
}

// --- denials by limit

function showDenials(s) {
  id('denials-card').hidden = !s.denials.length;
  const row = () => make('tr', {}, make('th', {scope: 'row'}), ...[1, 2, 3].map(() => make('td', {class: 'number'})));
  rows(id('denials').tBodies[0], s.denials, d => d.limit, row, (row, d) => {
    set(row.children[0], d.limit + (d.shadow ? ' (shadow)' : ''));
    set(row.children[1], number.format(d.checks));
    set(row.children[2], number.format(d.denied));
    set(row.children[3], number.format(d.would_deny));
  });
}

// --- top keys

function showTop(t) {
  const row = () => make('tr', {}, make('th', {scope: 'row'}), make('td'), make('td', {class: 'number'}), make('td', {class: 'number'}));
  for (const which of t.error ? [] : ['asked', 'denied']) { // the last keys are better than none
    rows(id(which).tBodies[0], t[which], k => k.limit + ' ' + k.id, row, (row, k) => {
      const known = k.key !== undefined;
      if (!row.children[0].firstChild) {
        if (known) {
          const button = make('button', {type: 'button', class: 'link', 'aria-label': `Watch ${k.key} of ${k.limit}`}, k.key);
          button.addEventListener('click', () => watch(k.limit, k.key));
          row.children[0].append(button);
        } else row.children[0].append(k.id.slice(0, 12) + '…');
      }
      set(row.children[1], k.limit);
      set(row.children[2], number.format(k.asks));
      set(row.children[3], number.format(k.denials));
    });
  }
  let note = t.error ? `They could not be told just now: ${t.error}` : 'of the last minute or two, about';
  if (t.missing.length) note += `; without ${list(t.missing)}, which did not answer`;
  if (t.silent.length) note += `; without ${list(t.silent)}, which tell nothing`;
  set(id('top-note'), note);
}

// --- the connection

let events = null, lastAt = 0, again = 0;

function connect() {
  clearTimeout(again);
  if (events) events.close();
  events = new EventSource(chosen ? `events?${new URLSearchParams(chosen)}` : 'events');
  events.addEventListener('snapshot', event => {
    const s = JSON.parse(event.data);
    lastAt = Date.now();
    id('main').classList.remove('stale');
    attribute(id('main'), 'aria-busy', null);
    set(id('name'), s.name + (s.region ? `, region ${s.region}` : ''));
    set(id('clock'), clock.format(s.at));
    showBanner(s);
    showMembers(s);
    showChecks(s);
    showLatency(s);
    showLimits(s);
    showDenials(s);
  });
  events.addEventListener('top', event => showTop(JSON.parse(event.data)));
  events.addEventListener('key', event => {
    const w = JSON.parse(event.data);
    if (!chosen || w.limit === chosen.limit && w.key === chosen.key) showKey(w);
  });
  events.addEventListener('error', () => {
    // The browser tries again by itself, unless it was refused.
    if (events.readyState === EventSource.CLOSED) again = setTimeout(connect, 5000);
  });
}

// Old figures must not be taken for new ones.
setInterval(() => {
  if (Date.now() - lastAt < 4000 || id('main').classList.contains('stale')) return;
  if (!lastAt) return;
  id('main').classList.add('stale');
  attribute(id('banner'), 'data-level', 'wait');
  set(id('sign'), '?');
  const text = `No figures since ${clock.format(lastAt)}`;
  set(id('headline'), text);
  set(id('subline'), 'What is below is old. The page tries again until it is answered.');
  set(id('said'), text);
  announced = '';
  set(id('clock'), 'not connected');
  document.title = '? Weir';
}, 1000);

connect();
