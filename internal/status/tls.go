package status

import "time"

// Certificate describes the certificate of a node. It is empty if the node's own files could not be used yet.
type Certificate struct {
	// Name is the name in it, as a URI.
	Name     string    `json:"name"`
	NotAfter time.Time `json:"not_after"`
	// Fingerprint is its SHA-256.
	Fingerprint string `json:"fingerprint"`
}

// Channel is the TLS of a bootstrap connection.
type Channel struct {
	Version string `json:"version"`
	Cipher  string `json:"cipher"`
	// Peer is the certificate that the peer has shown.
	Peer Certificate `json:"peer"`
}

// Refusal is why connections of peers were refused.
type Refusal struct {
	// From is the host that they came from.
	From string `json:"from"`
	// Reason is a word for programs, such as "no-tls" or "certificate-expired", or
	// the first part of the text.
	Reason string `json:"reason"`
	// Text says what was expected, what came, and what to do about it.
	Text  string `json:"text"`
	Count uint64 `json:"count"`
	// AgeS is how long ago the last one was, in seconds.
	AgeS float64 `json:"age_s"`
}
