// The worker of docs/start-queue.md in TypeScript. Run it after `npm install tsx`, with
// `node_modules/.bin/tsx worker.mts`: npx would not pass SIGTERM on.
//
// WEIR_SERVER and WEIR_API_KEY say where weir is, and with which key. If an authority of your own
// has signed weir's certificate, Node takes that from NODE_EXTRA_CA_CERTS.
import { writeFile } from "node:fs/promises";

const queue = (process.env.WEIR_SERVER ?? "http://127.0.0.1:8080") + "/v1/queues/mail";
const headers: Record<string, string> = { "Content-Type": "application/json" };
if (process.env.WEIR_API_KEY) headers.Authorization = "Bearer " + process.env.WEIR_API_KEY;

let running = true;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => { running = false; });

// post repeats a request until it is answered. A claim with the same id gets the same messages, and
// a repeated ack or nack counts once.
async function post(verb: string, body: object): Promise<Response> {
  for (;;) {
    try {
      const answer = await fetch(`${queue}/${verb}`, { method: "POST", headers, body: JSON.stringify(body) });
      if (answer.status < 500 && ![408, 429].includes(answer.status)) return answer;
    } catch {
      // no answer: it is repeated
    }
    await new Promise((later) => setTimeout(later, 1000));
  }
}

const handle = (purchase: number) => writeFile(`outbox/${purchase}`, `thank you for purchase ${purchase}\n`);

while (running) {
  const claimed = await post("claim", { id: crypto.randomUUID(), wait_ms: 10000, lease_ms: 60000, worker: "mailer" });
  if (!claimed.ok) throw new Error(await claimed.text());
  for (const { receipt, value, attempt } of (await claimed.json()).messages) {
    let error: string | undefined;
    try {
      await handle(JSON.parse(value).purchase);
    } catch (failed) {
      error = String(failed);
    }
    const verb = error === undefined ? "ack" : "nack";
    const answer = await post(verb, { receipts: [receipt], error });
    console.log(`${verb} of attempt ${attempt} ${answer.status}`);
  }
}
