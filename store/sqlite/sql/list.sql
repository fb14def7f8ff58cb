-- The keys from a given key on, in byte order. SEARCH state USING PRIMARY KEY (key>?).
SELECT key, version, value, put_at
FROM state
WHERE key >= ?1
ORDER BY key
LIMIT ?2
