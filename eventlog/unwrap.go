package eventlog

// Wrapper is an optional interface: a store around another store, such as a cache.
type Wrapper interface {
	Unwrap() Store
}

// As finds a store's optional interface, or the kind of store that it is, in the store or in what
// it is wrapped around. Ask for these with As only, so that a wrapped PostgreSQL still has its SQL
// sessions and its notifications.
func As[T any](store Store) (T, bool) {
	for store != nil {
		if found, is := store.(T); is {
			return found, true
		}
		wrapper, is := store.(Wrapper)
		if !is {
			break
		}
		store = wrapper.Unwrap()
	}
	var none T
	return none, false
}
