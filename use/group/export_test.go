package group

// InMemory counts the groups in memory.
func (c *Coordinator) InMemory() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.groups)
}

// Limits are the bounds that tests change.
type Limits = limits

// With returns the configuration with other limits.
func (c Config) With(l Limits) Config {
	c.limits = l
	return c
}
