// Times in the reader's zone, plots, live events and boxes that choose all. Pages work without it,
// except plots and live events.
(() => {
  'use strict';
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const local = new Intl.DateTimeFormat(undefined, {dateStyle: 'short', timeStyle: 'medium'});

  const inUTC = at => at.toISOString().replace('T', ' ').replace(/(\.000)?Z/, ' UTC');
  let utc = false;
  try { utc = localStorage.getItem('weir-utc') === 'yes'; } catch { /* the browser keeps nothing */ }

  // shown writes a time as the reader wants it, and the pointer shows it as the other.
  function shown(t, at) {
    t.dataset.ms = at.getTime();
    t.textContent = utc ? inUTC(at) : local.format(at);
    t.title = utc ? local.format(at) : inUTC(at);
  }

  function times(root) {
    for (const t of root.querySelectorAll('time[data-ms]')) { shown(t, new Date(Number(t.dataset.ms))); }
  }

  function zones(button) {
    const say = () => { button.textContent = utc ? 'UTC' : zone; };
    button.onclick = () => {
      utc = !utc;
      try { localStorage.setItem('weir-utc', utc ? 'yes' : 'no'); } catch { /* for this page only */ }
      say();
      times(document);
    };
    say();
  }

  function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  async function plots(box) {
    const answer = await fetch(box.dataset.plots);
    if (!answer.ok) { return; }
    const data = await answer.json();
    for (const at of box.querySelectorAll('.plot')) {
      const keys = at.dataset.series.split(','), names = (at.dataset.names || '').split(',');
      const columns = [data.t || [], ...keys.map(k => data[k] || [])];
      if (at.uplot) { at.uplot.setData(columns); continue; }
      const axis = {stroke: color('--dim'), grid: {stroke: color('--line'), width: 1}, ticks: {stroke: color('--line')}};
      const size = {width: at.clientWidth || 400, height: 180};
      at.uplot = new uPlot({...size, legend: {show: keys.length > 1}, axes: [axis, {...axis, size: 64, values: (u, all) => all.map(short)}],
        scales: {y: {range: (u, low, high) => [0, Math.max(high, 1)]}},
        series: [{}, ...keys.map((k, i) => ({label: names[i] || k, stroke: color(i ? '--warn' : '--accent'), width: 2, points: {show: false}}))]}, columns, at);
      new ResizeObserver(() => at.uplot.setSize({width: at.clientWidth, height: 180})).observe(at);
    }
  }

  function short(n) {
    for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
      if (Math.abs(n) >= size) { return +(n / size).toFixed(1) + unit; }
    }
    return String(+n.toFixed(2));
  }

  const kept = 200;

  function follow(button) {
    const into = document.getElementById(button.dataset.into);
    const from = new EventSource(button.dataset.live);
    button.textContent = 'Stop';
    button.onclick = () => { from.close(); button.textContent = 'Follow new events'; button.onclick = () => follow(button); };
    from.onmessage = m => {
      const e = JSON.parse(m.data), row = document.createElement('tr');
      const cell = text => { const td = document.createElement('td'); td.textContent = text; row.append(td); return td; };
      cell(e.partition).className = 'n';
      cell(e.offset).className = 'n';
      const at = cell(e.timestamp === undefined ? '–' : '');
      if (e.timestamp !== undefined) { shown(at.appendChild(document.createElement('time')), new Date(e.timestamp)); }
      cell(e.key ?? (e.key_b64 ? 'base64:' + e.key_b64 : '–')).className = 'key';
      cell(String(e.value ?? (e.value_b64 ? 'base64:' + e.value_b64 : '(tombstone)')).slice(0, 2000));
      into.prepend(row);
      while (into.children.length > kept) { into.lastChild.remove(); }
    };
  }

  document.addEventListener('DOMContentLoaded', () => {
    zones(document.getElementById('zone'));
    times(document);
    for (const box of document.querySelectorAll('[data-plots]')) {
      plots(box);
      setInterval(() => document.visibilityState === 'visible' && plots(box), 5000);
    }
    for (const b of document.querySelectorAll('[data-live]')) { b.onclick = () => follow(b); }
    for (const all of document.querySelectorAll('[data-all]')) {
      all.onchange = () => { for (const one of document.getElementsByName(all.dataset.all)) { one.checked = all.checked; } };
    }
  });
  document.addEventListener('htmx:beforeRequest', e => { if (document.visibilityState !== 'visible') { e.preventDefault(); } });
  document.addEventListener('htmx:afterSettle', e => times(e.target.parentElement || document));
})();
