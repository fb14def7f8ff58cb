package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/weir-log/weir/use/user"
)

// userView is a user in an answer.
type userView struct {
	Name       string                 `json:"name"`
	Mechanisms map[user.Mechanism]int `json:"mechanisms"` // with the number of iterations
	Damaged    bool                   `json:"damaged,omitempty"`
}

func viewOfUser(u user.User) userView { return userView{u.Name, u.Iterations, u.Damaged} }

// storedUsers returns the users, or an error if this server has none.
func (s *Server) storedUsers() (*user.Users, error) {
	if s.cfg.Users == nil {
		return nil, kindNotFound.because("this process has no users")
	}
	return s.cfg.Users, nil
}

// listUsers lists all users, by name, without their passwords, which the store does not have.
func (s *Server) listUsers(c *call) error {
	users, err := s.storedUsers()
	if err != nil {
		return err
	}
	return answerList(c, "users", users.List, func(user.User) bool { return true }, viewOfUser)
}

func (s *Server) describeUser(c *call) error {
	users, err := s.storedUsers()
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	one, err := users.Find(ctx, c.r.PathValue("user"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, viewOfUser(one))
}

// newPassword is what a request says of a password.
type newPassword struct {
	user       string // the name, of a new user
	password   string
	mechanisms []user.Mechanism
	iterations int
}

// credentials makes the credentials of a password. It waits for its turn: this takes milliseconds
// of processor time.
func (s *Server) credentials(ctx context.Context, c *call, p newPassword) (map[user.Mechanism]user.Credential, error) {
	if s.checks.acquire(ctx, c.who.ID()) != nil {
		return nil, kindOverloaded.because("too many passwords are being checked. Nothing happened; try again")
	}
	defer s.checks.release(c.who.ID())
	if err := s.stillMay(c); err != nil { // it may have waited for long
		return nil, err
	}
	return user.Credentials(p.password, p.mechanisms, cmp.Or(p.iterations, user.IterationsDefault))
}

// createUser adds a user.
func (s *Server) createUser(c *call) error {
	users, err := s.storedUsers()
	if err != nil {
		return err
	}
	p, err := s.readPassword(c, true)
	if err != nil {
		return err
	}
	if err := user.CheckName(p.user); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	set, err := s.credentials(ctx, c, p)
	if err != nil {
		return err
	}
	err = users.Change(ctx, []user.Change{{Name: p.user, Create: true, Set: set}})[0]
	if uncertain(err) {
		return kindUnknown.because("the user was sent to the store, but no answer came. GET /v1/users/%s shows whether it is there",
			url.PathEscape(p.user))
	}
	if err != nil {
		return err
	}
	v := userView{Name: p.user, Mechanisms: make(map[user.Mechanism]int)}
	for m, made := range set {
		v.Mechanisms[m] = made.Iterations
	}
	c.Header().Set("Location", "/v1/users/"+url.PathEscape(p.user))
	return c.json(http.StatusCreated, v)
}

// setPassword replaces a user's password, and the mechanisms with which the user can log in.
func (s *Server) setPassword(c *call) error {
	users, err := s.storedUsers()
	if err != nil {
		return err
	}
	p, err := s.readPassword(c, false)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	set, err := s.credentials(ctx, c, p)
	if err != nil {
		return err
	}
	return c.changedUser(users.Change(ctx, []user.Change{{Name: c.r.PathValue("user"), Clear: true, Set: set}})[0])
}

// deleteUser deletes a user. Rules about the user stay.
func (s *Server) deleteUser(c *call) error {
	users, err := s.storedUsers()
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	return c.changedUser(users.Change(ctx, []user.Change{{Name: c.r.PathValue("user"), Clear: true}})[0])
}

func (c *call) changedUser(err error) error {
	if err != nil {
		return sentAgain(err)
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// readPassword reads a body with a password, and with the name of a new user.
func (s *Server) readPassword(c *call, named bool) (p newPassword, err error) {
	body, err := s.jsonBody(c)
	if err != nil {
		return p, err
	}
	known := []string{"password", "mechanisms", "iterations"}
	if named {
		known = append([]string{"name"}, known...)
	}
	given := false
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(member string) (err error) {
			switch {
			case member == "name" && named:
				p.user, err = r.string()
			case member == "password":
				given = true
				p.password, err = r.string()
			case member == "mechanisms":
				err = r.strings(len(user.Mechanisms), func(text string) {
					p.mechanisms = append(p.mechanisms, user.Mechanism(text))
				})
			case member == "iterations":
				var n int64
				n, err = r.integer(user.IterationsMin, user.IterationsMax)
				p.iterations = int(n)
			default:
				err = r.unknown(member, known...)
			}
			return err
		})
	})
	switch {
	case err != nil:
		return p, err
	case !given:
		return p, kindInvalidJSON.because(`"password" is missing`)
	}
	return p, nil
}
