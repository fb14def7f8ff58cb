package s3

func (s *Store) upkeep()     { <-s.closing.Done() }
func (s *Store) wakeUpkeep() {}
