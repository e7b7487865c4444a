package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/meta/conf"
)

// clientTLS holds the flags that say how a tool speaks to brokers: over TLS, or
// as a file of properties for Kafka's own tools has it.
type clientTLS struct {
	on            bool
	ca, cert, key string
	properties    string
}

func (c *clientTLS) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.on, "tls", false, "speak TLS; the brokers' certificates must lead to an authority of this system, or of --tls-ca")
	cmd.Flags().StringVar(&c.ca, "tls-ca", "", "PEM file of the authority that is trusted (implies --tls)")
	cmd.Flags().StringVar(&c.cert, "tls-cert", "", "PEM file of the certificate to show, its chain behind it (implies --tls)")
	cmd.Flags().StringVar(&c.key, "tls-key", "", "PEM file of its private key, where --tls-cert does not hold that too")
	cmd.Flags().StringVar(&c.properties, "command-config", "", "properties file as for Kafka's tools: security.protocol and ssl.* (PEM)")
}

// used reports whether any of the flags is set.
func (c *clientTLS) used() bool { return *c != clientTLS{} }

// dialer opens connections to brokers.
func (c *clientTLS) dialer() (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	settings, err := c.settings()
	if err != nil {
		return nil, err
	}
	ssl, over, err := conf.ClientSSL(settings)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(c.properties, "--tls"), err)
	}
	plain := net.Dialer{Timeout: dialLimit}
	if !over {
		return plain.DialContext, nil
	}
	keys, err := secure.Open(ssl, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialLimit)
		defer cancel()
		return keys.Dial(ctx, address)
	}, nil
}

// settings are the properties of the file, the flags over them.
func (c *clientTLS) settings() (map[string]string, error) {
	settings := map[string]string{}
	if c.properties != "" {
		text, err := os.ReadFile(c.properties)
		if err != nil {
			return nil, fmt.Errorf("--command-config: %w", err)
		}
		own, err := properties(string(text))
		if err != nil {
			return nil, fmt.Errorf("--command-config %s: %w", c.properties, err)
		}
		maps.Copy(settings, own)
	}
	if c.on || c.ca != "" || c.cert != "" || c.key != "" {
		settings["security.protocol"] = "SSL"
	}
	if c.ca != "" {
		delete(settings, "ssl.truststore.certificates")
		settings["ssl.truststore.type"], settings["ssl.truststore.location"] = "PEM", c.ca
	}
	switch {
	case c.key != "" && c.cert == "":
		return nil, errors.New("--tls-key is the key of --tls-cert, which is missing")
	case c.key != "":
		key, err := os.ReadFile(c.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-key: %w", err)
		}
		cert, err := os.ReadFile(c.cert)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		delete(settings, "ssl.keystore.location")
		settings["ssl.keystore.type"], settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"] = "PEM", string(key), string(cert)
	case c.cert != "":
		delete(settings, "ssl.keystore.key")
		delete(settings, "ssl.keystore.certificate.chain")
		settings["ssl.keystore.type"], settings["ssl.keystore.location"] = "PEM", c.cert
	}
	return settings, nil
}

// properties reads Java's format: NAME=VALUE or NAME: VALUE a line, # and !
// before comments, a line that ends in a backslash goes on, and \n, \t, \r, \f
// and \uXXXX stand for characters.
func properties(text string) (map[string]string, error) {
	all := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for goesOn(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(lines[i], " \t\f")
		}
		end := nameEnd(line)
		value := strings.TrimLeft(line[end:], " \t\f")
		if value != "" && (value[0] == '=' || value[0] == ':') {
			value = strings.TrimLeft(value[1:], " \t\f")
		}
		name, err := unescape(line[:end])
		if err != nil {
			return nil, err
		}
		if all[name], err = unescape(value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// goesOn reports whether a line ends in a backslash that is not itself escaped.
func goesOn(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// nameEnd is where the name of a property ends.
func nameEnd(line string) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':', ' ', '\t', '\f':
			return i
		}
	}
	return len(line)
}

func unescape(text string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 'n':
			out.WriteByte('\n')
		case 't':
			out.WriteByte('\t')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			if i+5 > len(text) {
				return "", errors.New(`\u is not followed by four digits`)
			}
			n, err := strconv.ParseUint(text[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`\u%s: not four hexadecimal digits`, text[i+1:i+5])
			}
			out.WriteRune(rune(n))
			i += 4
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}
