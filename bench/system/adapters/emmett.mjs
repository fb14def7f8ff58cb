import { getPostgreSQLEventStore } from '@event-driven-io/emmett-postgresql';
import { serve } from './lines.mjs';

const store = getPostgreSQLEventStore(process.argv[2]);

// refused makes a conflict of the store's error: it reads the version that the stream is at.
async function refused(e, stream) {
	if (!/expected/i.test(`${e?.name} ${e?.message}`)) throw e;
	const { currentStreamVersion } = await store.readStream(stream);
	throw Object.assign(e, { actual: Number(currentStreamVersion) });
}

serve({
	async create() {
		await store.schema.migrate();
	},
	async append({ to, expected, values }) {
		const events = values.map((v) => ({ type: 'measured', data: JSON.parse(v.toString()) }));
		const expectedStreamVersion = expected < 0 ? 'NO_CONCURRENCY_CHECK' : expected === 0 ? 'STREAM_DOES_NOT_EXIST' : BigInt(expected);
		try {
			const done = await store.appendToStream(to, events, { expectedStreamVersion });
			return { version: Number(done.nextExpectedStreamVersion) };
		} catch (e) {
			return refused(e, to);
		}
	},
	async read({ from, at, most }) {
		const { events } = await store.readStream(from, { from: BigInt(at + 1), ...(most ? { maxCount: BigInt(most) } : {}) });
		return {
			versions: events.map((e) => Number(e.metadata.streamPosition) - 1),
			values: events.map((e) => Buffer.from(JSON.stringify(e.data)).toString('base64')),
		};
	},
});
