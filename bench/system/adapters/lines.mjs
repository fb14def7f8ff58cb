// The adapter's end of the protocol: JSON lines on standard input and output. Each request has an
// id, an op and its fields; the answer has the id, and ok or err. A value is base64.
import { createInterface } from 'node:readline';

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const working = new Map(); // by the id of the request: what stops it

// serve answers requests with the functions of an adapter. A function returns the fields of its
// answer. work(fields, got, acked) returns a function that stops it, and waits.
export function serve(ops) {
	const bytes = (fields) => ({ ...fields, values: fields.values?.map((v) => Buffer.from(v, 'base64')) });
	createInterface({ input: process.stdin }).on('line', async (text) => {
		const { id, op, ...fields } = JSON.parse(text);
		try {
			if (op === 'work') {
				const tell = (what) => (value) => say({ id, [what]: value.toString('base64') });
				working.set(id, await ops.work(fields, tell('got'), tell('acked')));
				return;
			}
			if (op === 'stop') {
				await working.get(fields.of)?.();
				say({ id: fields.of, ok: 1 });
			}
			say({ id, ok: 1, ...(op === 'stop' ? {} : await ops[op](bytes(fields))) });
		} catch (e) {
			say({ id, err: String(e?.stack ?? e), conflict: e?.actual });
		}
	}).on('close', () => process.exit(0));
}

// pause waits for so many milliseconds.
export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
