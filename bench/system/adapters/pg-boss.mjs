import { PgBoss } from 'pg-boss';
import { pause, serve } from './lines.mjs';

const boss = new PgBoss({ connectionString: process.argv[2], max: 40 });
boss.on('error', (e) => console.error(e));

serve({
	async create({ to }) {
		await boss.start();
		await boss.createQueue(to);
	},
	async enqueue({ to, values }) {
		await boss.insert(to, values.map((v) => ({ data: { raw: v.toString('base64') } })));
	},
	async work({ from, workers, batch }, got, acked) {
		let ended = false;
		const take = async () => {
			const jobs = await boss.fetch(from, { batchSize: batch });
			const values = jobs.map((j) => Buffer.from(j.data.raw, 'base64'));
			values.forEach(got);
			if (jobs.length) await boss.complete(from, jobs.map((j) => j.id));
			values.forEach(acked);
			return jobs.length;
		};
		const one = async () => {
			while (!ended) {
				try {
					if (!(await take())) await pause(1);
				} catch (e) { // its database may be away; what was not completed comes again
					console.error(String(e));
					await pause(50);
				}
			}
		};
		const all = Array.from({ length: workers }, one);
		return async () => {
			ended = true;
			await Promise.all(all);
		};
	},
});
