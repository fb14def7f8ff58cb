-- One key. SEARCH state USING PRIMARY KEY (key=?).
SELECT version, value, put_at
FROM state
WHERE key = ?1
