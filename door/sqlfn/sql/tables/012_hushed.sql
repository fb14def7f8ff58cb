-- hushed is until when publishers need not notify, in seconds since 1970: because the mover looks every few milliseconds, or because nobody
-- listens. To commit a notification takes a lock that the whole server has once: that must not happen thousands of times a second. It is a
-- sequence because every publisher asks for it, and a sequence is the cheapest thing to ask: it has one version, which all see at once.
CREATE SEQUENCE weir.hushed;

SELECT setval('weir.hushed', 1);

-- A sequence weir.watching had this part before. It is left where it is: to drop it would wait for every session that has published and not
-- committed yet.
