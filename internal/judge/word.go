package judge

// Word is what a process answers.
type Word struct {
	ID       int // of the order; 0: nobody asked
	Outcome  Outcome
	Err      string
	Places   []Place
	Members  int
	State    string
	Consumer string // whose handler this is about
	Group    string
	Handled  []Sight
	Once     bool // in a transaction that committed their offset
	Job      *Job
	// Projection: a projection's handler got Handled, in the run State.
	Projection bool
	// Version of a stream after an append, or that a conflict told; then Exists says whether there
	// is such a stream.
	Version int64
	Exists  bool
}

// Job is a message that a Go worker has, and then what it is about to answer: ack, nack or reject.
type Job struct {
	Queue, ID, Value string
	Attempt          int
	Answer           string
	Receipt          string
	InTx             bool // it acknowledges in its transaction: the word's outcome is pending before that
}
