package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/user"
)

type userCmd struct {
	Create userCreateCmd `cmd:"" help:"Create a user. The password is read from standard input or a file."`
	List   userListCmd   `cmd:"" help:"List users, without their passwords."`
	Alter  userAlterCmd  `cmd:"" help:"Give a user another password: open connections end."`
	Delete userDeleteCmd `cmd:"" help:"Delete users: open connections end."`
}

type userStore struct{ accessStore }

// with does something with the store's users.
func (c *userStore) with(ctx context.Context, t *terminal, do func(context.Context, *user.Users) error) error {
	return c.onLog(ctx, t, "a user", func(ctx context.Context, log *audit.Log, logger *slog.Logger) error {
		return do(ctx, user.New(log, logger))
	},
		hint{user.ErrUnknown, "`weir user list` lists the users"}, hint{user.ErrExists, "`weir user alter` changes a password"}, hint{user.ErrTooMany, ""})
}

// newPassword says where a user's new password is read, and how it is hashed.
type newPassword struct {
	PasswordFile string   `help:"The file with the password. Default: standard input." env:"-" placeholder:"FILE"`
	Mechanism    []string `help:"A mechanism with which the user can log in. May be given again. Default: both." enum:"SCRAM-SHA-256,SCRAM-SHA-512" env:"-" placeholder:"NAME" default:"SCRAM-SHA-256,SCRAM-SHA-512"`
	Iterations   int      `help:"How often the password is hashed, 4096 to 16384. More make a stolen store harder to use, and each login slower for the client. Default: ${default}." default:"8192" env:"-"`
}

const passwordRead = 1 << 10 // bytes: more than a password may have, so that one that is too long is refused, not cut

// credentials reads the password, and makes a credential of it for each mechanism. The password is
// in the file, if one is given; otherwise it is the line typed at the terminal, or all of standard
// input. At most passwordRead bytes are read, and a line end at the end is cut off.
func (p newPassword) credentials(t *terminal) (map[user.Mechanism]user.Credential, error) {
	from, name := t.in, "standard input"
	if p.PasswordFile != "" {
		file, err := os.Open(p.PasswordFile)
		if err != nil {
			return nil, usage(fmt.Errorf("read the password: %w", err), "")
		}
		defer file.Close()
		from, name = file, p.PasswordFile
	} else if t.inTTY {
		fmt.Fprintln(t.err, "Type the password, which is shown, and Enter; or press Ctrl-C and give a file with --password-file.")
		line, err := passwordLine(t.in, passwordRead)
		if err != nil {
			return nil, usage(fmt.Errorf("read the password from %s: %w", name, err), "")
		}
		from = strings.NewReader(line)
	}
	text, err := io.ReadAll(io.LimitReader(from, passwordRead))
	if err != nil {
		return nil, usage(fmt.Errorf("read the password from %s: %w", name, err), "")
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	var mechanisms []user.Mechanism
	for _, m := range p.Mechanism {
		mechanisms = append(mechanisms, user.Mechanism(m))
	}
	set, err := user.Credentials(password, mechanisms, p.Iterations)
	if err != nil {
		return nil, usage(fmt.Errorf("password from %s: %w", name, err), "")
	}
	return set, nil
}

// passwordLine reads up to a newline, byte by byte, so that nothing after it is taken.
func passwordLine(in io.Reader, most int) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < most; {
		if _, err := io.ReadFull(in, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	return string(line), nil
}

type userCreateCmd struct {
	userStore
	newPassword
	Name string `arg:"" help:"The user's name. In ACLs it is the principal User:NAME."`
}

func (userCreateCmd) Help() string {
	return `The password has 8 to 256 characters of printable ASCII. The store keeps only salted hashes of it. Servers on the store accept the user within a second, without a restart.

A user may do everything if the server has --super-users User:NAME, and otherwise what weir acl create allows.

Examples:

  weir user create admin --password-file admin.password
  openssl rand -hex 16 | tee alice.password | weir user create alice --store postgres://weir@db.internal/weir`
}

func (c *userCreateCmd) Run(ctx context.Context, t *terminal) error {
	return c.set(ctx, t, c.newPassword, user.Change{Name: c.Name, Create: true}, "added")
}

type userAlterCmd struct {
	userStore
	newPassword
	Name string `arg:"" names:"user" help:"The user's name."`
}

func (userAlterCmd) Help() string {
	return `Connections that were opened with the old password end within seconds. The user can log in only with the mechanisms that are given with the new password.

Examples:

  weir user alter alice --password-file alice.password`
}

func (c *userAlterCmd) Run(ctx context.Context, t *terminal) error {
	return c.set(ctx, t, c.newPassword, user.Change{Name: c.Name, Clear: true}, "changed the password of")
}

func (c *userStore) set(ctx context.Context, t *terminal, p newPassword, change user.Change, done string) error {
	if err := user.CheckName(change.Name); err != nil {
		return usage(err, "")
	}
	var err error
	if change.Set, err = p.credentials(t); err != nil {
		return err
	}
	return c.with(ctx, t, func(ctx context.Context, users *user.Users) error {
		if err := users.Change(ctx, []user.Change{change})[0]; err != nil {
			return err
		}
		made := user.User{Name: change.Name, Iterations: make(map[user.Mechanism]int)}
		for m, cred := range change.Set {
			made.Iterations[m] = cred.Iterations
		}
		if c.Output.json() {
			return printJSON(t, made)
		}
		_, err := fmt.Fprintf(t.out, "%s user %s (%s)\n", done, printable(made.Name), howOf(made))
		return err
	})
}

// howOf shows with which mechanisms a user can log in.
func howOf(u user.User) string {
	var words []string
	for _, m := range user.Mechanisms {
		if n := u.Iterations[m]; n > 0 {
			words = append(words, string(m)+" with "+strconv.Itoa(n)+" iterations")
		}
	}
	if u.Damaged {
		words = append(words, "damaged: delete it and add it again")
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

type userListCmd struct{ userStore }

func (userListCmd) Help() string {
	return "Examples:\n\n  weir user list\n  weir user list --output json"
}

func (c *userListCmd) Run(ctx context.Context, t *terminal) error {
	return c.with(ctx, t, func(ctx context.Context, users *user.Users) error {
		list, err := users.List(ctx)
		if err != nil {
			return err
		}
		return printRows(t, c.Output, "NAME MECHANISMS", list, func(u user.User) []string { return []string{u.Name, howOf(u)} })
	})
}

type userDeleteCmd struct {
	userStore
	consent
	Names []string `arg:"" names:"user" name:"name" help:"The names of the users."`
}

func (userDeleteCmd) Help() string {
	return `Their connections end within seconds.

Examples:

  weir user delete alice --yes`
}

func (c *userDeleteCmd) Run(ctx context.Context, t *terminal) error {
	slices.Sort(c.Names)
	c.Names = slices.Compact(c.Names)
	names := strings.Join(c.Names, " ")
	if err := c.obtain(t, "delete the user "+names, names); err != nil {
		return err
	}
	return c.with(ctx, t, func(ctx context.Context, users *user.Users) error {
		var changes []user.Change
		for _, name := range c.Names {
			changes = append(changes, user.Change{Name: name, Clear: true})
		}
		errs := users.Change(ctx, changes)
		var deleted []string
		for i, name := range c.Names {
			if errs[i] == nil {
				deleted = append(deleted, name)
			}
		}
		return errors.Join(append(errs, printEach(t, c.Output, deleted, func(name string) string { return "deleted user " + printable(name) }))...)
	})
}

// checkSuperUsers refuses what is not the principal of one user. User:* is none: it stands for
// every user in rules, and would give nobody anything here.
func checkSuperUsers(all []string) error {
	for _, principal := range all {
		switch name, ok := strings.CutPrefix(principal, "User:"); {
		case !ok || name == "":
			return usage(fmt.Errorf("--super-users %q is not %q and a name", principal, "User:"), "for the user admin, give User:admin")
		case principal == acl.Everybody:
			return usage(fmt.Errorf("--super-users %q names no user", principal),
				"this lets every user do everything: weir acl create --principal 'User:*' --allow --operation all --topic '*' --group '*' --cluster")
		}
		if err := acl.CheckPrincipal(principal); err != nil {
			return usage(fmt.Errorf("--super-users %q: %w", principal, err), "")
		}
	}
	return nil
}
