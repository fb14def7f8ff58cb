import { Queue, Worker } from 'bullmq';
import { serve } from './lines.mjs';

// The queue's commands fail at once while Redis is away, and a worker's wait for it: so has
// BullMQ's documentation it, "Going to production". A command whose answer was lost is not sent
// again: it may have been done.
const url = new URL(process.argv[2]);
const connection = { host: url.hostname, port: Number(url.port), autoResendUnfulfilledCommands: false };
const queues = new Map();

const queueOf = (name) => {
	if (!queues.has(name)) {
		const queue = new Queue(name, { connection: { ...connection, enableOfflineQueue: false }, defaultJobOptions: { removeOnComplete: true } });
		queue.on('error', (e) => console.error(String(e)));
		queues.set(name, queue);
	}
	return queues.get(name);
};

const jobOf = (value) => ({ name: 'measured', data: { raw: value.toString('base64') } });

serve({
	async create({ to }) {
		await queueOf(to).waitUntilReady();
	},
	async enqueue({ to, values }) {
		const jobs = values.map(jobOf);
		if (jobs.length === 1) await queueOf(to).add(jobs[0].name, jobs[0].data);
		else await queueOf(to).addBulk(jobs);
	},
	async work({ from, workers, batch }, got, acked) {
		const worker = new Worker(from, async (job) => got(Buffer.from(job.data.raw, 'base64')),
			{ connection: { ...connection, maxRetriesPerRequest: null }, concurrency: workers * batch });
		worker.on('error', (e) => console.error(String(e)));
		worker.on('completed', (job) => acked(Buffer.from(job.data.raw, 'base64'))); // Redis has answered
		await worker.waitUntilReady();
		return () => worker.close();
	},
});
