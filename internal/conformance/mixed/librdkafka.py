"""A member by librdkafka: it says what it reads, and commits it then. SIGTERM ends it."""

import signal
import sys

from confluent_kafka import Consumer, KafkaException

bootstrap, group, topic, name = sys.argv[1:5]
ends = False


def end(*_):
    global ends
    ends = True


signal.signal(signal.SIGTERM, end)
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "client.id": name, "group.protocol": "consumer",
    "auto.offset.reset": "earliest", "enable.auto.commit": False,
})
consumer.subscribe([topic])
while not ends:
    try:
        got = False
        for m in consumer.consume(100, 0.5):
            if m.error():
                print(m.error(), file=sys.stderr)
            else:
                got = True
                print("read", m.partition(), m.offset(), m.value().decode())
        sys.stdout.flush()
        if got:
            consumer.commit(asynchronous=False)
    except KafkaException as e:
        print(e, file=sys.stderr)  # what was not committed comes again, here or to another member
consumer.close()
