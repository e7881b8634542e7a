package bundle

import (
	"bytes"
	"regexp"
)

// removed stands for what was taken out.
const removed = "[removed]"

// secretWord is in the names of secrets, secretValue is what they may be.
const (
	secretWord = `(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|pwd|credential)`
	// A value may have escapes of JSON, which encoding/json makes of "<", ">" and "&".
	secretValue = `(?:[^\s"',;{}\[\])\\]|` + escape + `)(?:[^\s"',;}\]\\]|` + escape + `)*`
	escape      = `\\u[0-9a-fA-F]{4}`
	// secretHeader is the name of a header, and headerPart what of its value is not one character: an escape, other than
	// the end of a line, or a part in quotes. A quote that ends a string of JSON has another character behind it.
	secretHeader = `(?:authorization|(?:set-)?cookie)`
	headerPart   = `\\[^nr\n]|"[^\n",:}\]][^"\n]*"`
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
	{regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*(?:\\")?\s*[=:]\s*)\\"(?:[^"\\]|\\\\\\"|\\[^"])*\\"`), `${1}\"` + removed + `\"`},
	{regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*["']?\s*[=:]\s*)(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')`), `${1}"` + removed + `"`},
	// Headers with credentials, as JSON within JSON, as JSON, and as they are: to the end of the line, or of the string that they are in.
	{regexp.MustCompile(`(?i)(` + secretHeader + `\\"\s*[=:]\s*\[?)\\"(?:[^"\\]|\\\\\\"|\\[^"])*\\"`), `${1}\"` + removed + `\"`},
	{regexp.MustCompile(`(?i)(` + secretHeader + `"\s*[=:]\s*\[?)"(?:[^"\\\n]|\\.)*"`), `${1}"` + removed + `"`},
	{regexp.MustCompile(`(?i)(` + secretHeader + `"\s*[=:]\s*)[^\s"\[{][^"\n]*`), "${1}" + removed},
	{regexp.MustCompile(`(?i)(` + secretHeader + `'?\s*[=:]\s*)(?:[^"\\\s]|` + headerPart + `)(?:[^"\\\n]|` + headerPart + `)*`), "${1}" + removed},
	// name = value, name: value, "name":"value", and --name value.
	{regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*(?:\\?["'])?\s*[=:]\s*(?:\\?["'])?)` + secretValue), "${1}" + removed},
	{regexp.MustCompile(`(?i)(--?[a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*\s+)` + secretValue), "${1}" + removed},
	// The user's part of a URL.
	{regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://[^\s/:@"']*:)([^\s/@"']+)@`), "${1}" + removed + "@"},
}

// Scrub returns a text without what looks like a secret: private keys, values of names such
// as "password" and "token", and passwords in URLs. What is JSON, as a whole or as a line, stays JSON.
func Scrub(text []byte) []byte {
	if isJSON(text) {
		return scrubJSON(text)
	}
	var out, plain []byte
	for line := range bytes.Lines(text) {
		if !isJSON(line) {
			plain = append(plain, line...) // a secret may have several
			continue
		}
		out = append(append(out, scrubPlain(plain)...), scrubJSON(line)...)
		plain = plain[:0]
	}
	return append(out, scrubPlain(plain)...)
}

// scrubPlain is Scrub for what is not JSON.
func scrubPlain(text []byte) []byte {
	for _, s := range secrets {
		text = s.what.ReplaceAll(text, []byte(s.by))
	}
	return text
}
