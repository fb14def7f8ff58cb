INSERT INTO trash (partition_id, below)
VALUES (?1, ?2)
ON CONFLICT (partition_id) DO UPDATE
SET below = max(below, ?2)
