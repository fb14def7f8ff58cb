SELECT version
FROM state
WHERE key = ?1
