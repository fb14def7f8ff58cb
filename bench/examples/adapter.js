// An adapter for weir-bench: a log, a queue and streams in one file of JSON lines, which is flushed
// before anything is acknowledged. Try: weir-bench adapter check -- node adapter.js
const fs = require('node:fs');
const { createInterface } = require('node:readline');

const topics = {}, queues = {}, streams = {}, facts = []; // what the file has
const claimed = new Set(); // messages that a worker has
const running = {}; // requests that go on, by id: a promise that they have ended
const waiting = []; // for more
let file, durable, changes = 0;

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const list = (of, name) => (of[name] ??= []);
const more = () => new Promise((wake) => waiting.push(wake));
const wakeAll = () => waiting.splice(0).forEach((wake) => wake());

// The file has one line for each change. This is what it does.
const apply = {
	published: ({ to, values }) => list(topics, to).push(...values),
	enqueued: ({ to, values, n }) => values.forEach((value, i) => ((queues[to] ??= new Map()).set(`${n}/${i}`, value))),
	acknowledged: ({ of, messages }) => messages.forEach((m) => queues[of].delete(m)),
	appended: ({ to, values }) => values.forEach((value) => facts.push({ stream: to, version: list(streams, to).push(value) - 1, value })),
};
function change(kind, fields) {
	const line = { kind, ...fields, n: changes++ };
	fs.writeSync(file, JSON.stringify(line) + '\n');
	if (durable) fs.fdatasyncSync(file);
	apply[kind](line);
	wakeAll();
}

// deliver tells of each value of a list, and then of each that is new, until it is stopped.
async function deliver(id, values, told) {
	for (let next = 0; id in running; ) {
		while (next < values.length && id in running) say({ id, ...told(values[next++]) });
		await more();
	}
}

function claim(from, batch) {
	const mine = [];
	for (const message of queues[from] ?? []) if (mine.length < batch && !claimed.has(message[0])) mine.push(message);
	mine.forEach(([m]) => claimed.add(m));
	return mine;
}

async function worker(id, from, batch) {
	while (id in running) {
		const mine = claim(from, batch);
		for (const [, got] of mine) say({ id, got });
		await (mine.length ? new Promise(setImmediate) : more()); // others take their turn
		if (mine.length) change('acknowledged', { of: from, messages: mine.map(([m]) => m) });
		for (const [, acked] of mine) say({ id, acked });
	}
}

const ops = {
	hello({ dir, mode }) {
		const name = dir + '/adapter.jsonl';
		durable = mode === 'durable';
		if (fs.existsSync(name)) fs.readFileSync(name, 'utf8').split('\n').slice(0, -1).map(JSON.parse).forEach((l) => (apply[l.kind](l), changes++));
		file = fs.openSync(name, 'a');
		return { name: 'a file, by Node.js ' + process.version, can: ['log', 'queue', 'streams', 'follow'], order: 'key', settings: { fdatasync: String(durable) } };
	},
	create: () => {},
	publish: ({ to, events }) => change('published', { to, values: events.map((e) => e.value) }),
	consume: ({ id, from }) => deliver(id, list(topics, from), (got) => ({ got })), // one reader is all members
	enqueue: ({ to, values }) => change('enqueued', { to, values }),
	work: ({ id, from, workers, batch }) => Promise.all(Array.from({ length: workers }, () => worker(id, from, batch))),
	left: ({ from }) => ({ left: queues[from]?.size ?? 0 }),
	append({ to, expected, values }) {
		const at = list(streams, to).length;
		if (expected !== -1 && expected !== at) return { ok: 0, conflict: at };
		change('appended', { to, values });
		return { version: at + values.length };
	},
	read({ from, at, most }) {
		const values = list(streams, from).slice(at, most ? at + most : undefined);
		return { versions: values.map((_, i) => at + i), values };
	},
	async stop({ of }) {
		const ended = running[of];
		delete running[of];
		wakeAll();
		await ended;
		say({ id: of, ok: 1 });
	},
	follow: ({ id }) => deliver(id, facts, ({ stream, version, value }) => ({ stream, version, got: value })),
};

createInterface({ input: process.stdin }).on('line', async (line) => {
	const { op, ...r } = JSON.parse(line);
	try {
		if (['consume', 'work', 'follow'].includes(op)) running[r.id] = new Promise(setImmediate).then(() => ops[op](r));
		else say({ id: r.id, ok: 1, ...(await ops[op](r)) });
	} catch (e) {
		say({ id: r.id, ok: 0, err: String(e) });
	}
}).on('close', () => process.exit(0));
