DELETE FROM partition
WHERE id = ?1
