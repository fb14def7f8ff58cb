package group

// InMemory counts the groups in memory.
func (c *Coordinator) InMemory() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.groups)
}
