// Package apikey keeps the keys that HTTP clients show, and says what each of them may do.
//
// A key is keyed state, `apikey/<id>`: its name, what it may do, and the SHA-256 of its secret. A secret is 256 bits of
// chance, so there is nothing to guess and a plain hash is enough: slow hashes are for passwords that people think up.
//
// key.go is what a key is, keys.go makes, lists and revokes them, check.go judges secrets.
package apikey
