import { makeWorkerUtils, run } from 'graphile-worker';
import { serve } from './lines.mjs';

const connectionString = process.argv[2];
const silent = { logger: undefined };
let utils;

serve({
	async create() {
		utils = await makeWorkerUtils({ connectionString, maxPoolSize: 20 });
		await utils.migrate();
	},
	async enqueue({ to, values }) {
		const jobs = values.map((v) => ({ identifier: to, payload: { raw: v.toString('base64') } }));
		if (jobs.length === 1) await utils.addJob(to, jobs[0].payload);
		else await utils.addJobs(jobs);
	},
	async work({ from, workers, batch }, got, acked) {
		const runner = await run({
			...silent, connectionString, concurrency: workers * batch, maxPoolSize: workers * batch + 5, noHandleSignals: true,
			taskList: { [from]: async (payload) => got(Buffer.from(payload.raw, 'base64')) },
		});
		// It says so when the result has been written back to the database.
		runner.events.on('job:complete', ({ job, error }) => {
			if (!error) acked(Buffer.from(job.payload.raw, 'base64'));
		});
		return () => runner.stop();
	},
});
