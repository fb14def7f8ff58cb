// Package user keeps the users who log in with SCRAM (RFC 5802, RFC 7677), and finds their
// credentials.
//
// A user is stored under the key `scram/user/<name>`: for each mechanism the salt, the number of
// iterations, the stored key and the server key. The password is not stored, and cannot be computed
// from these except by guessing.
//
// user.go defines a user, users.go lists and changes users, lookup.go finds the credential for a
// login, password.go compares a password with it.
package user
