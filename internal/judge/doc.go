// Package judge knows what must be true of a history. Those who act tell it what they asked for and
// what they were answered, and a Model judges that at once where it can, and at the end otherwise.
// It acts on nothing and asks nobody, so internal/chaos, whose processes are real, and simulations
// can share it.
//
// An answer is done, refused or unknown. What is unknown may be there or not, and counts as
// neither.
package judge
