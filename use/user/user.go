package user

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
)

// Mechanism is a SASL mechanism, by its name.
type Mechanism string

// The mechanisms, as in Kafka (ScramMechanism).
const (
	SHA256 Mechanism = "SCRAM-SHA-256"
	SHA512 Mechanism = "SCRAM-SHA-512"
)

// Mechanisms are all mechanisms.
var Mechanisms = []Mechanism{SHA256, SHA512}

// Bounds of a user. Those of the iterations are Kafka's (ScramMechanism,
// ScramControlManager.MAX_ITERATIONS).
const (
	NameMax           = 128 // bytes
	IterationsMin     = 4096
	IterationsMax     = 16384
	IterationsDefault = 8192

	saltMax     = 128 // bytes
	passwordMin = 8   // bytes
	passwordMax = 256
)

// Hash returns a new hash of the mechanism's kind.
func (m Mechanism) Hash() hash.Hash {
	if m == SHA512 {
		return sha512.New()
	}
	return sha256.New()
}

// Credential is what the server knows of a password (RFC 5802, section 3).
type Credential struct {
	Salt       []byte `json:"salt"`
	Iterations int    `json:"iterations"`
	StoredKey  []byte `json:"stored_key"`
	ServerKey  []byte `json:"server_key"`
}

// User is a user without the credentials' secrets.
type User struct {
	Name       string            `json:"name"`
	Iterations map[Mechanism]int `json:"mechanisms"` // of each mechanism with which the user can log in
	Damaged    bool              `json:"damaged,omitempty"`
}

// Errors about users.
var (
	ErrUnknown = errors.New("no such user credential")
	ErrExists  = errors.New("there is such a user")
	ErrTooMany = errors.New("too many users")
)

func invalid(what, value, why string) error {
	return &eventlog.InvalidError{What: what, Value: value, Why: why}
}

// CheckName returns an error if no user may have the name.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > NameMax:
		return invalid("name of a user", name[:min(len(name), NameMax)], fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(name), NameMax))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalid("name of a user", name, "it has characters that cannot be printed")
	}
	return nil
}

// Credentials makes the credentials of a new password for some mechanisms; none: for all of them.
// It takes milliseconds of processor time for each mechanism.
func Credentials(password string, mechanisms []Mechanism, iterations int) (map[Mechanism]Credential, error) {
	if len(mechanisms) == 0 {
		mechanisms = Mechanisms
	}
	made := make(map[Mechanism]Credential, len(mechanisms))
	for _, m := range mechanisms {
		if _, again := made[m]; again {
			continue
		}
		if !slices.Contains(Mechanisms, m) {
			return nil, invalid("mechanism of a user", string(m[:min(len(m), NameMax)]), fmt.Sprintf("%s and %s are allowed", SHA256, SHA512))
		}
		c, err := FromPassword(m, password, iterations)
		if err != nil {
			return nil, err
		}
		made[m] = c
	}
	return made, nil
}

// FromPassword makes a credential with a new salt. It takes milliseconds of processor time.
//
// The password must be ASCII: RFC 5802 prepares other characters by SASLprep, which Kafka's own
// clients do not do, so clients would disagree.
func FromPassword(m Mechanism, password string, iterations int) (Credential, error) {
	switch {
	case len(password) < passwordMin || len(password) > passwordMax:
		return Credential{}, invalid("length of the password", strconv.Itoa(len(password)), fmt.Sprintf("%d to %d bytes are allowed", passwordMin, passwordMax))
	case strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r > '~' }):
		return Credential{}, invalid("password", "(hidden)", "only printable ASCII is allowed: clients prepare other characters in different ways")
	case iterations < IterationsMin || iterations > IterationsMax:
		return Credential{}, badIterations(iterations)
	}
	random := make([]byte, saltSource)
	rand.Read(random)
	salt := saltOf(random)
	salted, err := pbkdf2.Key(m.Hash, password, salt, iterations, m.Hash().Size())
	if err != nil {
		return Credential{}, fmt.Errorf("salt the password: %w", err)
	}
	return FromSalted(m, salt, salted, iterations)
}

// FromSalted makes a credential of a password that is salted already (KIP-554).
func FromSalted(m Mechanism, salt, salted []byte, iterations int) (Credential, error) {
	switch size := m.Hash().Size(); {
	case iterations < IterationsMin || iterations > IterationsMax:
		return Credential{}, badIterations(iterations)
	case len(salt) == 0 || len(salt) > saltMax:
		return Credential{}, invalid("length of the salt", strconv.Itoa(len(salt)), fmt.Sprintf("1 to %d bytes are allowed", saltMax))
	case len(salted) != size:
		return Credential{}, invalid("length of the salted password", strconv.Itoa(len(salted)), fmt.Sprintf("%s has %d bytes", m, size))
	}
	client := hmac.New(m.Hash, salted)
	client.Write([]byte("Client Key"))
	stored := m.Hash()
	stored.Write(client.Sum(nil))
	server := hmac.New(m.Hash, salted)
	server.Write([]byte("Server Key"))
	return Credential{Salt: slices.Clone(salt), Iterations: iterations, StoredKey: stored.Sum(nil), ServerKey: server.Sum(nil)}, nil
}

func badIterations(n int) error {
	return invalid("number of iterations", strconv.Itoa(n), fmt.Sprintf("%d to %d are allowed", IterationsMin, IterationsMax))
}

// check returns an error if a stored credential is damaged.
func (c Credential) check(m Mechanism) error {
	size := m.Hash().Size()
	if !slices.Contains(Mechanisms, m) || len(c.Salt) == 0 || c.Iterations < IterationsMin || c.Iterations > IterationsMax || len(c.StoredKey) != size || len(c.ServerKey) != size {
		return fmt.Errorf("the credential for %q is not valid", m)
	}
	return nil
}

const saltSource = 17 // bytes of which saltOf makes a salt

// saltOf makes a salt of random bytes. It looks like those of Kafka's tools
// (ScramFormatter.secureRandomString: 130 bits, base 36), so that a user's salt does not tell which
// tool made it, nor whether there is such a user.
func saltOf(random []byte) []byte {
	n := new(big.Int).SetBytes(random[:saltSource])
	return []byte(n.Rsh(n, 8*saltSource-130).Text(36))
}
