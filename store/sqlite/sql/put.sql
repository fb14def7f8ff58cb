INSERT INTO state (key, version, value, put_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (key) DO UPDATE
SET version = ?2, value = ?3, put_at = ?4
