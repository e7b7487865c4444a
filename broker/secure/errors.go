package secure

import "errors"

var (
	// ErrBadKeys is returned when a key, a certificate chain or the trusted certificates cannot be used; the text says which
	// and why.
	ErrBadKeys = errors.New("TLS keys cannot be used")

	// ErrSlow is returned when a handshake missed its deadline.
	ErrSlow = errors.New("the TLS handshake is not done in time")

	// ErrPlaintext is returned when a TLS client came to a listener of plain text.
	ErrPlaintext = errors.New("the client speaks TLS, the listener plain text")
)
