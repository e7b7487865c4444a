// Package secure is TLS as listeners and clients use it: keys, chains and trust from PEM, and what is said about handshakes
// that fail.
//
// # How to use it
//
//	keys, err := secure.Open(ssl, secure.Deps{Logger: log})
//	conn = tls.Server(conn, keys.Server())       // one config for the life of a listener
//	conn = tls.Client(conn, keys.Client(host))   // a new one for each connection
//	dial := keys.Dialer(log)                     // the same for peer.Config.Dial
//
// # Files
//
// Certificates expire in systems that are kept for years, so files are read again when they have changed: a handshake looks
// at most once in a second. What a changed file says counts for new connections; those that are open stay as they are. Files
// that cannot be used keep the ones before in force, and the log says so, once for each change.
//
// # Crash behaviour
//
// Nothing is written.
//
// # Lock order
//
// Keys.mu is a leaf. Files are read without it.
//
// # Non-obvious
//
//   - Sessions are resumed only where no certificate is asked for: a resumed session would be trusted by what the authority
//     was when it began.
//   - The client always shows its certificate, whichever authorities the server names: a server that does not trust it then
//     says so, instead of saying that there was none.
//   - TLS 1.3 lets a client believe that the handshake is over before the server has looked at its certificate: the refusal
//     comes as the error of its first read.
package secure
