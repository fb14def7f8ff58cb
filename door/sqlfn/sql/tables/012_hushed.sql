-- hushed is a time, in seconds since 1970: until then publishers need not notify, because the mover looks every few milliseconds, or because nobody
-- listens. To commit a notification takes a lock of which the whole server has only one: that must not happen thousands of times a second. It is a
-- sequence because every publisher reads it, and a sequence is cheapest to read: it has one version, which all sessions see immediately.
CREATE SEQUENCE weir.hushed;

SELECT setval('weir.hushed', 1);

-- Before, the sequence weir.watching had this role. It is not dropped: that would wait for every session that has published and not
-- committed yet.
