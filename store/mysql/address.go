package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// form is the form of a URL.
const form = "mysql://user:password@host:port/database"

// target is what a URL says.
type target struct {
	*mysql.Config
	oneNode bool // all processes use this node of a cluster: see unfit
}

// parse turns a URL into the driver's configuration. Errors do not quote the URL: it may hold a
// password.
func parse(address string) (*target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("the URL cannot be parsed; it must have the form %s, with special characters percent-encoded", form)
	}
	config := &target{Config: mysql.NewConfig()}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.TrimPrefix(u.Path, "/")
	if config.DBName == "" || strings.Contains(config.DBName, "/") {
		return nil, fmt.Errorf("the URL names no database; it must have the form %s", form)
	}
	config.Net, config.Addr = "tcp", u.Host
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	config.TLSConfig = "preferred"
	var ca string
	for name, values := range u.Query() {
		value := values[len(values)-1]
		switch name {
		case "socket":
			config.Net, config.Addr, config.TLSConfig = "unix", value, ""
		case "tls":
			switch value {
			case "true", "false", "preferred", "skip-verify":
			default:
				return nil, fmt.Errorf("tls=%s in the URL: it must be true, false, preferred or skip-verify", value)
			}
			config.TLSConfig = value
		case "tls-ca":
			ca = value
		case "one_node":
			if config.oneNode = value == "true"; !config.oneNode && value != "false" {
				return nil, fmt.Errorf("one_node=%s in the URL: it must be true or false", value)
			}
		default:
			return nil, fmt.Errorf("the URL has the unknown option %q; there are socket, tls, tls-ca and one_node", name)
		}
	}
	if ca != "" {
		if config.TLS, err = trusting(ca, u.Hostname()); err != nil {
			return nil, err
		}
		config.TLSConfig = ""
	}
	if config.Net == "tcp" && u.Host == "" {
		return nil, fmt.Errorf("the URL names no server; it must have the form %s", form)
	}
	config.Timeout = 10 * time.Second
	config.MaxAllowedPacket = 0     // ask the server
	config.InterpolateParams = true // several statements in one trip
	config.MultiStatements = true
	config.Logger = silent{} // what fails is returned, too
	return config, nil
}

// trusting returns a configuration of TLS that trusts the authorities in a PEM file.
func trusting(file, server string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tls-ca in the URL: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls-ca in the URL: %s holds no certificate in PEM form", file)
	}
	return &tls.Config{RootCAs: roots, ServerName: server, MinVersion: tls.VersionTLS12}, nil
}

type silent struct{}

func (silent) Print(...any) {}

// nameOf names a server and database without secrets.
func nameOf(config *mysql.Config) string { return config.Addr + "/" + config.DBName }

// pool returns a pool of connections with one isolation level.
func pool(config *mysql.Config, isolation string, most int) *sql.DB {
	db := sql.OpenDB(connector{config, isolation})
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	db.SetConnMaxIdleTime(5 * time.Minute) // less than the usual wait_timeout
	return db
}

// connector makes connections whose settings do not depend on the server's defaults: see
// sessionSettings.
type connector struct {
	config    *mysql.Config
	isolation string
}

func (c connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := mysql.NewConnector(c.config)
	if err != nil {
		return nil, err
	}
	conn, err := inner.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, sessionSettings(c.isolation), nil)
	if err != nil && code(err) != errNoVariable { // only the variables that are set last may be unknown to the server
		return nil, errors.Join(fmt.Errorf("%w: set the session's settings: %w", errNotSent, err), conn.Close())
	}
	return conn, nil
}
