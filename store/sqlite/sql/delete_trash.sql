-- Nothing is left to delete, unless the partition has been trimmed further since (below is higher then).
DELETE FROM trash
WHERE partition_id = ?1 AND below = ?2
