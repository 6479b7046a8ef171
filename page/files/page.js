// The page of Weir. It shows the snapshot that the server sends every second.
'use strict';

const kept = 120; // number of seconds that charts show
const groups = ['authority', 'stand-in', 'shares'];
const words = {
  owner: 'the owner, locally', forwarded: 'the owner, reached directly', relayed: 'the owner, through another member', stand_in: 'stand-in',
  budget: 'a share of the limit', failed_open: 'the policy fail_open', failed_closed: 'the policy fail_closed', pushback: 'a cached denial', leased: 'a lease',
};
const id = name => document.getElementById(name);
const number = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const clock = new Intl.DateTimeFormat(undefined, {hourCycle: 'h23', hour: '2-digit', minute: '2-digit', second: '2-digit'});

// set changes the text of an element only if it differs, so that screen readers announce only changes.
function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function attribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function make(name, attributes, ...children) {
  const svg = ['path', 'g', 'text'].includes(name);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) attribute(element, key, value);
  element.append(...children);
  return element;
}

// rows shows a row for each item. The row of an item that was shown before stays, and keeps the focus.
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
// few lists at most ten of the given names. The argument all is the number of all names.
const few = (names, all) => list(all > 10 ? [...names.slice(0, 10), number.format(all - Math.min(10, names.length)) + ' more'] : names);
const list = names => names.length < 2 ? names.join('') : names.slice(0, -1).join(', ') + ' and ' + names[names.length - 1];

// sums returns the allowed and the denied checks per second of each kind of decision.
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
  const here = plural(s.roster.all, 'member');
  let level = 'good', text = s.roster.all === 1 ? 'The only member serves' : `All ${here} serve`;
  if (sides > 1) {
    level = 'bad';
    text = `Split into ${sides} sides: ` + list([...new Set(s.members.filter(m => m.side).map(m => m.side))].sort()
      .map(side => list(s.members.filter(m => m.side === side).map(m => m.name))).map(names => `[${names}]`));
    const gone = missing.filter(m => !m.side);
    if (gone.length) text += `; missing: ${list(gone.slice(0, 10).map(m => `${m.name} (${m.state})`))}`;
  } else if (missing.length) {
    level = 'bad';
    text = `${number.format(s.roster.missing)} of ${here} ${s.roster.missing === 1 ? 'is' : 'are'} missing: ` + few(missing.map(m => `${m.name} (${m.state})`), s.roster.missing);
  } else if (changing.length) {
    level = 'warn';
    text = `${few(changing.map(m => `${m.name} is ${m.state}`), s.roster.changing)}, ${number.format(s.roster.serving)} of ${here} serve`;
  } else if (of.all && both(of['stand-in']) + both(of.shares) > 0 || s.outage) {
    level = 'warn';
    text += ', and some checks are decided without authority';
  }
  return {level, text, key: level + missing.map(m => m.id) + changing.map(m => m.id) + s.roster.missing + sides};
}

let announced = '', saidAt = 0;

function showBanner(s) {
  const of = sums(s.checks), h = headline(s, of);
  attribute(id('banner'), 'data-level', h.level);
  set(id('sign'), {good: '✓', warn: '!', bad: '✕'}[h.level]);
  set(id('headline'), h.text);
  set(id('total-heading'), s.gathered ? 'checks/s, all members' : 'checks/s');
  set(id('total'), s.checks ? perSecond(of.all) : '–');
  set(id('denied-part'), s.checks ? percent(groups.reduce((n, by) => n + of[by].denied, 0), of.all) : '–');
  let more = '';
  if (s.error) more += `The other members' checks are not counted: ${s.error}. `;
  else if (s.uncounted.length) more += `Without the checks of ${list(s.uncounted)}, which did not answer. `;
  if (s.outage) {
    more += `Since ${clock.format(s.outage.since)}, ${number.format(s.outage.decisions)} checks without authority`;
    more += s.outage.missing.length ? `; missing: ${list(s.outage.missing)}.` : '.';
  }
  set(id('subline'), more);
  id('runbook').hidden = !s.runbook;
  attribute(id('runbook'), 'href', s.runbook + (s.runbook.includes('#') ? '' : {bad: '#weirmembermissing', warn: s.outage ? '#weiroutage' : ''}[h.level] || ''));
  for (const by of groups) set(id('by-' + by), s.checks ? percent(both(of[by]), of.all) : '–');
  document.title = `${{good: '✓', warn: '!', bad: '✕'}[h.level]} ${s.name} – Weir`;
  // Screen readers announce a change of the state, at most once in five seconds.
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

function showRing(s) {
  const owners = s.members.filter(m => m.share > 0), rest = s.roster.all - s.members.length;
  if (rest > 0) owners.push({id: 'rest of the members', name: plural(rest, 'other'), share: s.roster.rest, health: 'serving', state: 'together'});
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
  set(id('ring-count'), `${number.format(s.roster.serving)} of ${number.format(s.roster.all)}`);
  set(id('ring-word'), s.roster.all === 1 ? 'member serves' : 'members serve');
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
  const answer = await post('act', {member, action});
  set(id('failed'), answer && `The action failed: ${action} ${member}: ${answer}`);
}

let latest = null, asked = 0;

function showMembers(s) {
  latest = s;
  showRing(s);
  id('actions-heading').hidden = !s.members.some(m => m.actions);
  id('find-part').hidden = s.roster.all <= s.members.length;
  find();
}

function showRows(members, note) {
  rows(id('members').tBodies[0], members, m => m.id, memberRow, showMember);
  set(id('members-note'), note);
}

// find shows the members that contain the text in the search field. Without a text, it shows the members of the
// latest snapshot.
async function find() {
  const text = id('find').value.trim(), mine = ++asked;
  if (!text || id('find-part').hidden) {
    showRows(latest.members, `${number.format(latest.members.length)} of ${plural(latest.roster.all, 'member')} are shown: first the members that are missing, join or leave.`);
    return;
  }
  try {
    const answer = await fetch('members?' + new URLSearchParams({find: text}));
    if (!answer.ok) return;
    const found = await answer.json();
    if (mine === asked) showRows(found.members, `${plural(found.found, 'member')} found${found.found > found.members.length ? `, of which ${found.members.length} are shown` : ''}.`);
  } catch {
    // The next snapshot tries again.
  }
}

id('find').addEventListener('input', () => { if (latest) find(); });

// --- charts of uPlot: a canvas with axes, and a legend with the values at the pointer

const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const compact = new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1});
const charts = [];

// hatching returns a fill of diagonal lines, for denied checks. A pixel of CSS has devicePixelRatio pixels of
// the canvas.
function hatching(color) {
  const size = Math.round(8 * devicePixelRatio), tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const pen = tile.getContext('2d');
  pen.fillStyle = css('card');
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = color;
  pen.lineWidth = size / 4;
  for (const from of [-size, 0, size]) {
    pen.beginPath();
    pen.moveTo(from - size / 2, size * 1.5);
    pen.lineTo(from + size * 1.5, -size / 2);
    pen.stroke();
  }
  return pen.createPattern(tile, 'repeat');
}

// chart draws lines over the last two minutes. A line is {name, by, sign, color, fill, dash, width, shown}. The
// function shown returns the text of the value at an index. A logarithmic axis begins and ends at powers of ten.
function chart(host, legend, lines, axis) {
  const c = {at: [], rows: lines.map(() => []), plot: null, host};
  const entries = lines.map(line => {
    const sign = make('i', {class: line.sign || 'solid', 'data-by': line.by});
    const value = make('b');
    legend.append(make('li', {}, sign, line.name + ' ', value));
    return value;
  });
  const moment = make('b');
  legend.prepend(make('li', {class: 'moment'}, moment));
  const tell = () => {
    const at = c.plot && c.plot.cursor.idx, i = at === null || at === undefined ? c.at.length - 1 : at;
    if (i < 0) return;
    set(moment, i === c.at.length - 1 ? 'now' : clock.format(c.at[i] * 1000));
    lines.forEach((line, n) => set(entries[n], line.shown(i)));
  };
  const edge = {stroke: () => css('quiet'), grid: {stroke: () => css('line'), width: 1}, ticks: {stroke: () => css('line'), width: 1, size: 5}, font: '12px system-ui, sans-serif'};
  c.draw = () => {
    if (!c.at.length || host.hidden || !host.clientWidth) return tell();
    if (!c.plot) {
      c.plot = new uPlot({
        width: host.clientWidth, height: host.clientHeight, legend: {show: false}, padding: [10, 28, 0, 0],
        cursor: {sync: {key: 'time'}, drag: {x: false, y: false}, y: false, points: {size: 7}},
        scales: {x: {time: true, range: () => [c.at[c.at.length - 1] - kept, c.at[c.at.length - 1]]}, y: {distr: axis.log ? 3 : 1, range: axis.range}},
        axes: [
          {...edge, space: 90, size: 30, incrs: [15, 30, 60], values: (u, splits) => splits.map(v => clock.format(v * 1000))},
          {...edge, space: 32, size: 62, splits: axis.splits, filter: (u, splits) => splits, values: (u, splits) => splits.map(axis.value)},
        ],
        series: [{}, ...lines.map(line => ({
          stroke: () => css(line.color), width: line.width === undefined ? 2 : line.width, dash: line.dash, points: {show: false},
          fill: line.fill === 'solid' ? () => css(line.color) : line.fill === 'hatched' ? () => hatching(css(line.color)) : undefined,
        }))],
        hooks: {setCursor: [tell]},
      }, [c.at, ...c.rows], host);
    } else c.plot.setData([c.at, ...c.rows]);
    tell();
  };
  c.add = (at, values) => {
    c.at.push(at / 1000);
    values.forEach((v, i) => c.rows[i].push(v));
    while (c.at.length > 2 * kept || c.at[0] < at / 1000 - kept) {
      c.at.shift();
      c.rows.forEach(row => row.shift());
    }
    c.draw();
  };
  c.clear = () => {
    c.at.length = 0;
    c.rows.forEach(row => row.length = 0);
    if (c.plot) c.plot.destroy();
    c.plot = null;
  };
  new ResizeObserver(() => {
    if (c.plot && host.clientWidth) c.plot.setSize({width: host.clientWidth, height: host.clientHeight});
    else c.draw();
  }).observe(host);
  charts.push(c);
  return c;
}

// A change of the colour scheme redraws all charts.
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => charts.forEach(c => c.plot && c.plot.redraw()));

// powers returns the powers of ten in a range, and only every second power of a large range.
function powers(u, axis, min, max) {
  const all = [], from = Math.round(Math.log10(min)), to = Math.round(Math.log10(max));
  for (let power = from; power <= to; power += to - from > 5 ? 2 : 1) all.push(10 ** power);
  return all;
}

const fromZero = (u, min, max) => [0, max > 0 ? max * 1.08 : 1];

// The areas are stacked: a row of the chart has the sum of its own value and of all values below. The highest area
// is drawn first.
const stacked = groups.flatMap(by => [{by, outcome: 'allowed'}, {by, outcome: 'denied'}]).reverse();
let pastChecks = [];
const checksChart = chart(id('checks-chart'), id('checks-legend'), stacked.map(({by, outcome}) => ({
  name: outcome === 'allowed' ? by : 'denied', by, sign: outcome === 'allowed' ? 'solid' : 'denied', color: by, width: 0, fill: outcome === 'allowed' ? 'solid' : 'hatched',
  shown: i => perSecond(pastChecks[i + pastChecks.length - checksChart.at.length][by][outcome]),
})), {range: fromZero, value: v => compact.format(v)});

function showChecks(s) {
  rows(id('checks').tBodies[0], s.checks || [], r => r.source,
    () => make('tr', {}, make('th', {scope: 'row'}, make('span', {class: 'source'})), make('td', {class: 'number'}), make('td', {class: 'number'})),
    (row, r) => {
      set(row.children[0].firstChild, words[r.source] || r.source);
      attribute(row.children[0].firstChild, 'data-by', r.by);
      set(row.children[1], perSecond(r.allowed));
      set(row.children[2], perSecond(r.denied));
    });
  set(id('checks-heading'), s.gathered ? 'Checks per second, all members' : 'Checks per second');
  if (!s.checks) return;
  const of = sums(s.checks);
  let below = 0;
  const tops = [...stacked].reverse().map(({by, outcome}) => below += of[by][outcome]).reverse();
  pastChecks = [...pastChecks.slice(1 - 2 * kept), of];
  checksChart.add(s.at, tops);
}

const latencyChart = chart(id('latency-chart'), id('latency-legend'), [
  {name: '99 % within', color: 'text', sign: 'line', shown: i => duration(latencyChart.rows[0][i])},
  {name: 'half within', color: 'text', sign: 'line dashed', dash: [2, 4], shown: i => duration(latencyChart.rows[1][i])},
], {log: true, range: (u, min, max) => [1, Math.max(1e4, 10 ** Math.ceil(Math.log10(max || 1)))], value: duration, splits: powers});

function showLatency(s) {
  rows(id('latency').tBodies[0], s.latency || [], l => l.source,
    () => make('tr', {}, make('th', {scope: 'row'}, make('span', {class: 'source'})), make('td', {class: 'number'}), make('td', {class: 'number'})),
    (row, l) => {
      set(row.children[0].firstChild, words[l.source] || l.source || 'all together');
      attribute(row.children[0].firstChild, 'data-by', l.by || 'all');
      set(row.children[1], duration(l.p50_us));
      set(row.children[2], duration(l.p99_us));
    });
  set(id('latency-heading'), s.gathered ? 'Latency of checks, this node' : 'Latency of checks');
  if (!s.latency || !s.latency.length) return;
  const all = which => s.latency[0][which] < 0 ? 2e6 : Math.max(1, s.latency[0][which]);
  latencyChart.add(s.at, [all('p99_us'), all('p50_us')]);
}

// --- one key

const keyChart = chart(id('key-chart'), id('key-legend'), [
  {name: 'used', by: 'authority', color: 'authority', width: 0, fill: 'solid', shown: i => number.format(keyChart.rows[0][i])},
  {name: 'limit', color: 'shares', sign: 'line limit', dash: [7, 4], shown: i => number.format(keyChart.rows[1][i])},
  {name: 'granted to all clients', color: 'text', sign: 'line', shown: i => keyChart.rows[2][i] === null ? '' : number.format(keyChart.rows[2][i])},
], {range: fromZero, value: v => compact.format(v)});

// within returns the time until an event, in words.
function within(ms) {
  if (ms <= 0) return 'now';
  if (ms < 1000) return 'in less than a second';
  const s = Math.ceil(ms / 1000);
  if (s < 120) return `in ${s} s`;
  if (s < 7200) return `in ${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 172800) return `in ${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `in ${number.format(s / 86400)} days`;
}

let secret = []; // limits whose keys are credentials

function showKey(w) {
  if (w.error) set(id('key-desc'), w.error);
  const left = `now: ${number.format(Math.max(0, w.grants - w.used))} are left`;
  const facts = w.error ? [['The key cannot be watched', w.error]] : [
    ...w.held ? [
      ['Held now', `${number.format(w.used)} of ${number.format(w.grants)}`],
      ['Next free unit', w.free_ms > 0 ? 'after the release of a hold' : left],
    ] : [
      ['Used now', `${number.format(w.used)} of ${number.format(w.grants)}${w.per_ms ? ` per ${period(w.per_ms)}` : ''}`],
      ['Next free unit', w.free_ms > 0 ? within(w.free_ms) : left],
      ['Whole limit', w.reset_ms > 0 ? `${within(w.reset_ms)}, if no more units are spent` : 'now'],
    ],
    ...w.counted < 0 ? [] : [['Granted', `${number.format(w.counted)} units to all clients in this period`]],
    ['Decided by', `${words[w.source] || w.source}${w.by === 'authority' ? '' : ', without authority'}`],
    ['Owner', w.owner || 'not known'],
  ];
  rows(id('watched').tBodies[0], facts, f => f[0], () => make('tr', {}, make('th', {scope: 'row'}), make('td')), (row, f) => {
    set(row.children[0], f[0]);
    set(row.children[1], f[1]);
  });
  id('key-none').hidden = true;
  id('key-legend').lastElementChild.hidden = !(w.counted >= 0);
  if (w.error) return;
  id('key-chart').hidden = id('key-legend').hidden = false;
  id('main').classList.remove('unwatched');
  keyChart.add(w.at, [w.used, w.grants, w.counted < 0 ? null : w.counted]);
  set(id('key-desc'), `${secret.includes(w.limit) ? 'The key' : w.key} has used ${w.used} of ${w.grants} of ${w.limit}.`);
}

function period(ms) {
  for (const [unit, size] of [['h', 3600e3], ['min', 60e3], ['s', 1e3]]) {
    if (ms >= size && ms % size === 0) return ms === size ? unit : `${ms / size} ${unit}`;
  }
  return `${ms} ms`;
}

let chosen = null; // the watched limit and key; null until the viewer or the server has chosen them

function watch(limit, key) {
  chosen = {limit, key};
  keyChart.clear();
  id('watched').tBodies[0].replaceChildren();
  id('limit').value = limit;
  id('key').value = key;
  hideSecret();
  connect();
}

// hideSecret makes the browser show dots in place of a key that is a credential.
function hideSecret() {
  id('key').type = secret.includes(id('limit').value) ? 'password' : 'text';
}

id('limit').addEventListener('change', hideSecret);

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
  if (secret.join('\n') !== s.secret.join('\n')) secret = s.secret;
  hideSecret();
  id('watch').hidden = !s.limits.length;
  if (!s.limits.length && !chosen) set(id('key-desc'), 'This node has no rules, so no key can be watched.');
  if (s.watch && !chosen) {
    chosen = s.watch;
    select.value = chosen.limit;
    id('key').value = chosen.key;
    hideSecret();
  }
}

// --- limits, outages, rules

function showDenials(s) {
  id('denials').hidden = !s.denials.length;
  const cell = () => make('td', {class: 'number'});
  rows(id('denials').tBodies[0], s.denials, l => l.limit, () => make('tr', {}, make('th', {scope: 'row'}), cell(), cell(), cell(), cell()), (row, l) => {
    const now = n => s.checks ? perSecond(n) : '–';
    [l.limit + (s.modes?.[l.limit] ? ` (${s.modes[l.limit]})` : ''), now(l.allowed), now(l.denied), number.format(l.all_denied), l.all_shadow ? `${number.format(l.all_shadow)} (${now(l.shadow)}/s)` : '–']
      .forEach((text, i) => set(row.children[i], text));
  });
  const whose = s.gathered ? 'all members' : 'these members';
  set(id('denials-note'), s.denials.length ? `Denied: denials since ${whose} started. Shadow: denials that are not enforced, because the rule is a shadow for the key.` : 'No limit has made a decision yet.');
}

function lasted(ms) {
  const s = Math.max(1, Math.round(ms / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${number.format(s / 3600)} h`;
}

const day = new Intl.DateTimeFormat(undefined, {hourCycle: 'h23', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit'});

function showOutages(s) {
  const all = [...s.outage ? [{...s.outage, until: 0}] : [], ...s.past];
  id('outages').hidden = !all.length;
  id('outages-note').hidden = all.length > 0;
  rows(id('outages').tBodies[0], all, o => o.since, () => make('tr', {}, make('th', {scope: 'row'}), make('td'), make('td'), make('td', {class: 'number'})), (row, o) => {
    [new Date(o.since).toDateString() === new Date(s.at).toDateString() ? clock.format(o.since) : day.format(o.since), o.until ? lasted(o.until - o.since) : 'ongoing', list(o.missing) || 'no member', number.format(o.decisions)]
      .forEach((text, i) => set(row.children[i], text));
  });
}

function showFacts(s) {
  const r = s.rules, facts = [];
  const published = text => `version ${text.version} by ${text.by} at ${day.format(new Date(text.at))}${text.reason ? `, ${text.reason}` : ''}`;
  if (r) {
    const refused = Object.values(r.blocked || {}).reduce((sum, n) => sum + n, 0);
    facts.push(['Rules', `version ${r.version}, ${plural(r.rules, 'rule')}, ${plural(r.limits, 'limit')}, ${plural(r.overrides, 'override')}`],
      ...r.switched?.length ? [['Switches', r.switched.join('; ')]] : [],
      ...r.adapted?.length ? [['Adapted', r.adapted.join('; ')]] : [],
      ...r.changes?.length ? [['Changes', r.changes.join('; ')]] : [],
      ...r.hot?.length ? [['Hot keys', `${r.hot.join('; ')} (weir raise list)`]] : [],
      ...r.blocks || refused ? [['Blocks', `${number.format(r.blocks)} in force, ${plural(refused, 'request')} refused by this node`]] : [],
      ...r.bans ? [['Bans', r.bans]] : [],
      ['Loaded', `${day.format(new Date(r.loaded_at))}, hash ${r.hash}`],
      ...r.published ? [['Published', published(r.published)]] : [],
      ...r.refused_text ? [['Refused', `${published(r.refused_text)}: ${r.refused_text.error}`]] : [],
      ['File', r.error ? `the current file is not in force: ${r.error}` : `the ${r.published ? 'published text' : 'current file'} is in force`]);
  } else facts.push(['Rules', 'none on this node']);
  facts.push(['Weir', s.version]);
  rows(id('facts').tBodies[0], facts, f => f[0], () => make('tr', {}, make('th', {scope: 'row'}), make('td')), (row, f) => {
    set(row.children[0], f[0]);
    set(row.children[1], f[1]);
  });
}

function showSwitch(s) {
  const select = id('switch-rule'), names = s.switchable || [], shown = [...select.options].map(o => o.value);
  id('switch').hidden = !names.length;
  if (names.join('\n') === shown.join('\n')) return;
  const was = select.value;
  select.replaceChildren(...names.map(name => make('option', {value: name}, name === '*' ? 'all rules' : name)));
  if (names.includes(was)) select.value = was;
}

id('switch').addEventListener('submit', async event => {
  event.preventDefault();
  const form = new FormData(event.target), mode = form.get('mode'), rule = form.get('rule');
  const answer = await post('switch', {rule, mode, minutes: Number(form.get('minutes')), by: form.get('by'), reason: form.get('reason')});
  set(id('failed'), answer && `The switch failed: ${answer}`);
  set(id('switched'), answer ? '' : `${rule === '*' ? 'all rules' : rule}: ${mode || 'as in the file'}`);
});

// post returns the reason why a request failed, or ''.
async function post(path, body) {
  try {
    const answer = await fetch(path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
    return answer.ok ? '' : (await answer.text()).trim();
  } catch {
    return 'the server does not respond';
  }
}

// --- top keys

function showTop(t) {
  const row = () => make('tr', {}, make('th', {scope: 'row'}), make('td'), make('td', {class: 'number'}), make('td', {class: 'number'}));
  if (!t.error) id('held-part').hidden = !t.held.length;
  for (const which of t.error ? [] : ['asked', 'denied', 'held']) { // after an error, the last keys stay
    rows(id(which).tBodies[0], t[which], k => k.limit + ' ' + k.id, row, (row, k) => {
      if (!row.children[0].firstChild) {
        if (k.masked) row.children[0].append(k.key, make('span', {class: 'small'}, `id ${k.id.slice(0, 12)}…`));
        else if (k.key !== undefined) {
          const button = make('button', {type: 'button', class: 'link', 'aria-label': `Watch ${k.key} of ${k.limit}`}, k.key);
          button.addEventListener('click', () => watch(k.limit, k.key));
          row.children[0].append(button);
        } else row.children[0].append('id ' + k.id.slice(0, 12) + '…');
      }
      set(row.children[1], k.limit);
      set(row.children[2], which === 'held' ? `${number.format(k.held)} of ${number.format(k.held_most)}` : number.format(k.asks));
      set(row.children[3], number.format(k.denials));
    });
  }
  let note = t.error ? `The top keys are not available now: ${t.error}` : 'approximate numbers of the last one to two minutes';
  if (t.missing.length) note += `; without ${list(t.missing)}, which did not answer`;
  if (t.silent.length) note += `; without ${list(t.silent)}, which reported no keys`;
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
    showLimits(s);
    showChecks(s);
    showLatency(s);
    showDenials(s);
    showOutages(s);
    showFacts(s);
    showSwitch(s);
  });
  events.addEventListener('top', event => showTop(JSON.parse(event.data)));
  events.addEventListener('key', event => {
    const w = JSON.parse(event.data);
    if (!chosen || w.limit === chosen.limit && w.key === chosen.key) showKey(w);
  });
  events.addEventListener('error', () => {
    // The browser connects again by itself, unless the server has refused the connection.
    if (events.readyState === EventSource.CLOSED) again = setTimeout(connect, 5000);
  });
}

// If no snapshot arrives, the page shows that its figures are old.
setInterval(() => {
  if (Date.now() - lastAt < 4000 || id('main').classList.contains('stale')) return;
  if (!lastAt) return;
  id('main').classList.add('stale');
  attribute(id('banner'), 'data-level', 'wait');
  set(id('sign'), '?');
  const text = `No figures since ${clock.format(lastAt)}`;
  set(id('headline'), text);
  set(id('subline'), 'The figures below are outdated. The page retries until the server responds.');
  set(id('said'), text);
  announced = '';
  set(id('clock'), 'not connected');
  document.title = '? Weir';
}, 1000);

connect();
