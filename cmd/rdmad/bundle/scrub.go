package bundle

import "regexp"

// removed stands for what was taken out.
const removed = "[removed]"

// secretWord is in the names of secrets, secretValue is what they may be.
const (
	secretWord  = `(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|pwd|credential)`
	secretValue = `[^\s"',;{}\[\])\\][^\s"',;}\]\\]*`
)

// secrets are what is taken out of every text, with what is put in its place. The values
// end before what ends a word or a string, so that JSON stays JSON.
var secrets = []struct {
	what *regexp.Regexp
	by   string
}{
	// Private keys, also with their lines escaped in JSON, and also if the end is missing.
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), removed},
	// A key whose beginning was cut off.
	{regexp.MustCompile(`^[A-Za-z0-9+/=\s\\]*-----END [A-Z0-9 ]*PRIVATE KEY-----`), removed},
	// Values in quotes, to their end; those in JSON within JSON keep their kind of quotes.
	{regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*(?:\\")?\s*[=:]\s*)\\"(?:[^"\\]|\\[^"])*\\"`), `${1}\"` + removed + `\"`},
	{regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*["']?\s*[=:]\s*)(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')`), `${1}"` + removed + `"`},
	{regexp.MustCompile(`(?i)((?:authorization|(?:set-)?cookie)["']?\s*[=:]\s*["']?)[^\n"']+`), "${1}" + removed},
	// name = value, name: value, "name":"value", and --name value.
	{regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*\\?["']?\s*[=:]\s*\\?["']?)` + secretValue), "${1}" + removed},
	{regexp.MustCompile(`(?i)(--?[a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*\s+)` + secretValue), "${1}" + removed},
	// The user's part of a URL.
	{regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^\s/:@"']*:)([^\s/@"']+)@`), "${1}" + removed + "@"},
}

// Scrub returns a text without what looks like a secret: private keys, values of names such
// as "password" and "token", and passwords in URLs.
func Scrub(text []byte) []byte {
	for _, s := range secrets {
		text = s.what.ReplaceAll(text, []byte(s.by))
	}
	return text
}
