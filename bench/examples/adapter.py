"""An adapter for weir-bench with Python's standard library: a log, a queue and streams in SQLite.
Try: weir-bench adapter check -- python3 adapter.py"""
import json, os, sqlite3, sys, threading

changed = threading.Condition()  # guards all below, and wakes who waits for more
db = None
claimed = set()  # messages that a worker has
running = {}  # the threads of requests that go on, by id
output = threading.Lock()

def say(**line):
    with output:
        print(json.dumps(line), flush=True)

def hello(r):
    global db
    sync = "FULL" if r["mode"] == "durable" else "NORMAL"
    db = sqlite3.connect(os.path.join(r["dir"], "adapter.db"), check_same_thread=False)
    db.executescript(f"""PRAGMA journal_mode = WAL; PRAGMA synchronous = {sync};
        CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, topic TEXT, value TEXT);
        CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT, value TEXT);
        CREATE TABLE IF NOT EXISTS facts (id INTEGER PRIMARY KEY, stream TEXT, version INTEGER, value TEXT, UNIQUE (stream, version));""")
    return {"name": "SQLite " + sqlite3.sqlite_version, "can": ["log", "queue", "streams", "follow"], "order": "key", "settings": {"synchronous": sync}}

def select(sql, *args):
    with changed:
        return db.execute(sql, args).fetchall()

def insert(sql, rows):
    with changed, db:  # committed, and flushed, at the end
        db.executemany(sql, rows)
        changed.notify_all()

def append(r):  # requests are read one by one: no other append is between these two
    at = select("SELECT count(*) FROM facts WHERE stream = ?", r["to"])[0][0]
    if r["expected"] not in (-1, at):
        return {"ok": 0, "conflict": at}
    insert("INSERT INTO facts (stream, version, value) VALUES (?, ?, ?)", [(r["to"], at + i, v) for i, v in enumerate(r["values"])])
    return {"version": at + len(r["values"])}

def read(r):
    rows = select("SELECT version, value FROM facts WHERE stream = ? AND version >= ? ORDER BY version LIMIT ?", r["from"], r["at"], r["most"] or -1)
    return {"versions": [v for v, _ in rows], "values": [v for _, v in rows]}

def take(r, find):
    """Returns what find finds, when there is something; nothing when the request was stopped."""
    with changed:
        while r["id"] in running:
            if rows := find():
                return rows
            changed.wait()

def tail(r, sql, *args):
    last = 0
    while rows := take(r, lambda: db.execute(sql + " AND id > ? ORDER BY id LIMIT 1000", [*args, last]).fetchall()):
        for last, *row in rows:
            say(id=r["id"], **dict(zip(("got", "stream", "version"), row)))

def work(r):
    def claim():
        rows = db.execute("SELECT id, value FROM messages WHERE queue = ? ORDER BY id LIMIT ?", [r["from"], r["batch"] + len(claimed)])
        mine = [m for m in rows if m[0] not in claimed][: r["batch"]]
        claimed.update(id for id, _ in mine)
        return mine
    while mine := take(r, claim):
        for _, value in mine:
            say(id=r["id"], got=value)
        insert("DELETE FROM messages WHERE id = ?", [(id,) for id, _ in mine])
        for _, value in mine:
            say(id=r["id"], acked=value)

def stop(r):
    with changed:
        threads = running.pop(r["of"])
        changed.notify_all()
    for t in threads:
        t.join()
    say(id=r["of"], ok=1)

answers = {
    "hello": hello, "append": append, "read": read, "stop": stop, "create": lambda r: {},
    "publish": lambda r: insert("INSERT INTO events (topic, value) VALUES (?, ?)", [(r["to"], e["value"]) for e in r["events"]]),
    "enqueue": lambda r: insert("INSERT INTO messages (queue, value) VALUES (?, ?)", [(r["to"], v) for v in r["values"]]),
    "left": lambda r: {"left": select("SELECT count(*) FROM messages WHERE queue = ?", r["from"])[0][0]},
}
goes_on = {
    "consume": lambda r: tail(r, "SELECT id, value FROM events WHERE topic = ?", r["from"]),  # one thread is all members
    "follow": lambda r: tail(r, "SELECT id, value, stream, version FROM facts WHERE true"), "work": work,
}
for line in sys.stdin:
    r = json.loads(line)
    try:
        if r["op"] in goes_on:
            running[r["id"]] = [threading.Thread(target=goes_on[r["op"]], args=[r], daemon=True) for _ in range(r.get("workers", 1))]
            for t in running[r["id"]]:
                t.start()
        else:
            say(**{"id": r["id"], "ok": 1, **(answers[r["op"]](r) or {})})
    except Exception as e:
        say(id=r["id"], ok=0, err=repr(e))
