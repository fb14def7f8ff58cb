package eventlog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// NeedsKey names what a weir must know to use the store: a list of names, as JSON. A weir that does
// not know one of them opens no log on the store and copies nothing of it (ErrUpgraded), as with a
// schema that is too new; a process that runs already reads and writes nothing more. The key is
// beside ClosedKey and ShardKey, so it is read with them. A name is put together with a new leader
// epoch (PlannedEpoch): so every process notices before its next commit. Names stay.
const NeedsKey = EpochKey + "/needs"

// knows are the names that this weir knows. What changes how a store must be read or written, so
// that an older weir would be wrong, adds one.
var knows []string

// checkNeeds returns an error that matches ErrUpgraded if NeedsKey has a name that this weir does
// not know.
func checkNeeds(kv KeyValue) error {
	var needs, unknown []string
	if err := json.Unmarshal(kv.Value, &needs); err != nil {
		return fmt.Errorf("%w: key %s holds %.100q, which this weir cannot read: %w", ErrUpgraded, kv.Key, kv.Value, err)
	}
	for _, name := range needs {
		if !slices.Contains(knows, name) {
			unknown = append(unknown, fmt.Sprintf("%.100q", name))
		}
	}
	if unknown == nil {
		return nil
	}
	names := strings.Join(unknown, " and ")
	return fmt.Errorf("%w: the store needs %s, which this weir does not know; use a weir that knows %s", ErrUpgraded, names, names)
}
