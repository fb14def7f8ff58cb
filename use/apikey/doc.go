// Package apikey keeps the API keys of HTTP clients, and says what each of them may do.
//
// A key is keyed state, `apikey/<id>`: its name, what it may do, and the SHA-256 of its secret. A secret has 260 random
// bits, so there is nothing to guess and a plain hash is enough: slow hashes are for passwords that people think up.
//
// key.go defines a key, keys.go creates, lists and revokes keys, check.go checks secrets.
package apikey
