package sqlite

import _ "embed"

// The statements, one to a file.
var (
	//go:embed sql/partition.sql
	sqlPartition string
	//go:embed sql/partitions.sql
	sqlPartitions string
	//go:embed sql/put_partition.sql
	sqlPutPartition string
	//go:embed sql/delete_partition.sql
	sqlDeletePartition string

	//go:embed sql/add_body.sql
	sqlAddBody string
	//go:embed sql/add_batch.sql
	sqlAddBatch string
	//go:embed sql/holding.sql
	sqlHolding string
	//go:embed sql/from.sql
	sqlFrom string
	//go:embed sql/next_batch.sql
	sqlNextBatch string
	//go:embed sql/bodies.sql
	sqlBodies string
	//go:embed sql/not_older.sql
	sqlNotOlder string

	//go:embed sql/spanned.sql
	sqlSpanned string
	//go:embed sql/delete_span_bodies.sql
	sqlDeleteSpanBodies string
	//go:embed sql/delete_span.sql
	sqlDeleteSpan string
	//go:embed sql/sizes_down.sql
	sqlSizesDown string

	//go:embed sql/version.sql
	sqlVersion string
	//go:embed sql/put.sql
	sqlPut string
	//go:embed sql/forget.sql
	sqlForget string
	//go:embed sql/list.sql
	sqlList string
	//go:embed sql/get.sql
	sqlGet string

	//go:embed sql/add_trash.sql
	sqlAddTrash string
	//go:embed sql/next_trash.sql
	sqlNextTrash string
	//go:embed sql/trashed.sql
	sqlTrashed string
	//go:embed sql/delete_bodies.sql
	sqlDeleteBodies string
	//go:embed sql/delete_batches.sql
	sqlDeleteBatches string
	//go:embed sql/delete_trash.sql
	sqlDeleteTrash string

	//go:embed sql/torn.sql
	sqlTorn string
)
