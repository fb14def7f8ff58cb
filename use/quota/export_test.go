package quota

// Meters returns how many meters there are.
func (e *Enforcer) Meters() int {
	e.meters.mu.Lock()
	defer e.meters.mu.Unlock()
	return len(e.meters.all)
}

// MetersMax is metersMax, and EntitiesMax is entitiesMax.
const (
	MetersMax   = metersMax
	EntitiesMax = entitiesMax
)
