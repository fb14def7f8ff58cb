// Package apikey keeps the API keys of HTTP and Kafka clients, and says what each of them may do.
//
// An API key is stored under the key `apikey/<id>`: its name, its rights, and the SHA-256 of its
// secret. A secret has 260 random bits, so nobody can guess it, and a plain hash is enough: slow
// hashes are for passwords that people choose.
//
// key.go defines a key, rules.go says its rights as rules, keys.go creates, lists and revokes keys,
// check.go checks secrets.
package apikey
