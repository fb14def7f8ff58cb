-- Nothing is left to delete, unless the partition was trimmed further meanwhile.
DELETE FROM trash
WHERE partition_id = ?1 AND below = ?2
