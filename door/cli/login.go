package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// loginFlags say as whom a command logs in, over HTTP and over Kafka's protocol alike, and which
// servers it trusts.
type loginFlags struct {
	APIKey       string `help:"The API key, if the server needs one. Better set it with WEIR_API_KEY: other users of the machine can see command lines." name:"api-key" placeholder:"KEY"`
	User         string `help:"Log in as this user instead, with the password in --password-file." placeholder:"NAME"`
	PasswordFile string `help:"The file with the password of --user." placeholder:"FILE"`
	TLSCA        string `help:"Over TLS, trust servers whose certificate one of those in this PEM file has signed. Default: those that this machine trusts." name:"tls-ca" placeholder:"FILE"`
}

// who returns the user to log in as, and the password; "": nobody, or with an API key.
func (f *loginFlags) who() (name, password string, err error) {
	switch {
	case f.User == "" && f.PasswordFile == "":
		return "", "", nil
	case f.User == "":
		return "", "", usage(fmt.Errorf("--password-file is given without --user"), "give --user NAME, too")
	case f.PasswordFile == "":
		return "", "", usage(fmt.Errorf("--user is given without --password-file"), "write the password to a file that only you can read, and give --password-file FILE")
	case f.APIKey != "":
		return "", "", usage(fmt.Errorf("--user and --api-key are both given"), "leave one out; perhaps WEIR_API_KEY or WEIR_USER is set")
	}
	file, err := os.Open(f.PasswordFile)
	if err != nil {
		return "", "", config(fmt.Errorf("--password-file: %w", err), "")
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, passwordRead))
	if err != nil {
		return "", "", config(fmt.Errorf("--password-file: %w", err), "")
	}
	return f.User, strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// trust returns the settings of TLS by which a server is trusted.
func (f *loginFlags) trust() (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.TLSCA == "" {
		return trust, nil
	}
	text, err := os.ReadFile(f.TLSCA)
	if err != nil {
		return nil, config(fmt.Errorf("--tls-ca: %w", err), "")
	}
	trust.RootCAs = x509.NewCertPool()
	if !trust.RootCAs.AppendCertsFromPEM(text) {
		return nil, config(fmt.Errorf("--tls-ca %s has no certificate in PEM form", f.TLSCA), "give it the certificate that signed the server's")
	}
	return trust, nil
}

// clients are the HTTP clients of this process, by --tls-ca: a command asks often.
var clients sync.Map

// client returns the HTTP client of the command.
func (f *loginFlags) client() (*http.Client, error) {
	if f.TLSCA == "" {
		return http.DefaultClient, nil
	}
	if client, there := clients.Load(f.TLSCA); there {
		return client.(*http.Client), nil
	}
	trust, err := f.trust()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = trust
	client, _ := clients.LoadOrStore(f.TLSCA, &http.Client{Transport: transport})
	return client.(*http.Client), nil
}
