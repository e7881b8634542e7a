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

// secret is a form that secrets have in texts.
type secret struct {
	name string
	what *regexp.Regexp
	by   string // what is put in its place
	// before and after are an example, which no other form makes of the same.
	before, after string
}

// secrets are looked for in this order: of forms that begin alike the longer comes first, and what is left of it is none of the next
// one. The values end before what ends a word or a string, so that JSON stays JSON. What is in JSON as a whole has no quotes and no
// escapes here, as scrubJSON has taken them away; of lines with JSON in them, such as those of a journal, they are there, and of JSON
// in a string of that twice.
var secrets = []secret{
	{
		"private key, to its end or that of the text", regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), removed,
		"a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb", "a\n[removed]\nb",
	},
	{
		"private key whose beginning was cut off", regexp.MustCompile(`^[A-Za-z0-9+/=\s\\]*-----END [A-Z0-9 ]*PRIVATE KEY-----`), removed,
		"MHcCAQ\nabc=\n-----END EC PRIVATE KEY-----\nb", "[removed]\nb",
	},
	{
		"value in quotes, of JSON in a string", regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*(?:\\")?\s*[=:]\s*)\\"(?:[^"\\]|\\\\\\"|\\[^"])*\\"`), `${1}\"` + removed + `\"`,
		`core: {"text":"{\"password\":\"a \\\"b\\\" c\\n d\",\"n\":1}"}`, `core: {"text":"{\"password\":\"[removed]\",\"n\":1}"}`,
	},
	{
		"value in quotes", regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*["']?\s*[=:]\s*)(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')`), `${1}"` + removed + `"`,
		`core: {"auth_token":"a \"b\" c","n":1}`, `core: {"auth_token":"[removed]","n":1}`,
	},
	{
		"header in quotes, of JSON in a string", regexp.MustCompile(`(?i)(` + secretHeader + `\\"\s*[=:]\s*\[?)\\"(?:[^"\\]|\\\\\\"|\\[^"])*\\"`), `${1}\"` + removed + `\"`,
		`core: {"text":"{\"authorization\":[\"Bearer \\\"abc\\\"\"],\"n\":1}"}`, `core: {"text":"{\"authorization\":[\"[removed]\"],\"n\":1}"}`,
	},
	{
		"header in quotes", regexp.MustCompile(`(?i)(` + secretHeader + `"\s*[=:]\s*\[?)"(?:[^"\\\n]|\\.)*"`), `${1}"` + removed + `"`,
		`core: {"Authorization":"Bearer \"abc\"","n":1}`, `core: {"Authorization":"[removed]","n":1}`,
	},
	{
		"header with its name in quotes, to the end of the line", regexp.MustCompile(`(?i)(` + secretHeader + `"\s*[=:]\s*)[^\s"\[{][^"\n]*`), "${1}" + removed,
		"\"Authorization\": Bearer abc\nHost: x", "\"Authorization\": [removed]\nHost: x",
	},
	{
		"header, to the end of the line or of the string that it is in", regexp.MustCompile(`(?i)(` + secretHeader + `'?\s*[=:]\s*)(?:[^"\\\s]|` + headerPart + `)(?:[^"\\\n]|` + headerPart + `)*`), "${1}" + removed,
		`core: {"text":"Authorization: Digest username=\"bob\", response=\"6629\"","n":1}`, `core: {"text":"Authorization: [removed]","n":1}`,
	},
	{
		"value without quotes", regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*(?:\\?["'])?\s*[=:]\s*(?:\\?["'])?)` + secretValue), "${1}" + removed,
		`core: {"text":"password=\u003cabc\u003e {\"pin_token\":12}"}`, `core: {"text":"password=[removed] {\"pin_token\":[removed]}"}`,
	},
	{
		"flag of a command", regexp.MustCompile(`(?i)(--?[a-z0-9_.-]*` + secretWord + `[a-z0-9_.-]*\s+)` + secretValue), "${1}" + removed,
		"rdmad run --token abc -c file", "rdmad run --token [removed] -c file",
	},
	{
		"password in a URL", regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://[^\s/:@"']*:)([^\s/@"']+)@`), "${1}" + removed + "@",
		"HTTPS://bob:hunter2@db/x", "HTTPS://bob:[removed]@db/x",
	},
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
func scrubPlain(text []byte) []byte { return scrubOf(secrets, text) }

// scrubOf takes forms of secrets out of a text, in their order.
func scrubOf(forms []secret, text []byte) []byte {
	for _, s := range forms {
		text = s.what.ReplaceAll(text, []byte(s.by))
	}
	return text
}
