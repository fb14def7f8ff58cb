"""A member over HTTP: it says what it reads, and commits it then. SIGTERM ends it."""

import json
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

servers, group, topic, name = sys.argv[1].split(","), *sys.argv[2:5]
ends = False


def end(*_):
    global ends
    ends = True


def call(method, path, body=None):
    """Asks the first server; one that does not answer is asked last from then on."""
    request = urllib.request.Request(
        "http://" + servers[0] + path, method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as e:
        print(method, path, e.code, e.read().decode(), file=sys.stderr)
        raise
    except OSError as e:
        print(method, path, e, file=sys.stderr)
        servers.append(servers.pop(0))
        raise


signal.signal(signal.SIGTERM, end)
member = None
while not ends:
    try:
        if member is None:
            joined = call("POST", f"/v1/groups/{group}/members", {"topics": [topic], "session_ms": 6000, "client": name})
            member = f"/v1/groups/{group}/members/" + urllib.parse.quote(joined["id"], safe="")
        page = call("GET", member + "/events?max=100&wait_ms=500")
        for e in page["events"]:
            print("read", e["partition"], e["offset"], e["value"])
        sys.stdout.flush()
        if page["events"]:
            call("POST", member + "/commit", {"next": page["next"]})
    except OSError:
        member = None  # its session ends, and what it did not commit comes again
        time.sleep(0.2)
if member is not None:
    try:
        call("DELETE", member)
    except OSError:
        pass  # its session ends
