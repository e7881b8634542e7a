package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
)

var (
	// jsonToken is a string, a mark, or something else of JSON that is valid.
	jsonToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+`)
	// jsonSecret and jsonHeader are names whose values are secrets: of the latter also those in a list.
	jsonSecret = regexp.MustCompile(`(?i)(?:` + secretWord + `[a-z0-9_.-]*|` + secretHeader + `)$`)
	jsonHeader = regexp.MustCompile(`(?i)` + secretHeader + `$`)
)

// isJSON reports whether a text is an object or a list of JSON.
func isJSON(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[') && json.Valid(text)
}

// scrubJSON is Scrub for what isJSON: each string on its own, without its escapes, so that what is left is JSON whatever is in them.
func scrubJSON(text []byte) []byte {
	var out []byte
	end := 0
	name := "" // of the value that comes next
	listed := false
	for _, at := range jsonToken.FindAllIndex(text, -1) {
		out = append(out, text[end:at[0]]...)
		end = at[1]
		token, next := text[at[0]:end], bytes.TrimLeft(text[end:], " \t\r\n")
		switch c := token[0]; {
		case c == '"' && bytes.HasPrefix(next, []byte(":")):
			token, name = scrubString(token, false)
		case c == '"':
			token, _ = scrubString(token, listed || jsonSecret.MatchString(name))
			name = ""
		case c == ':', c == ',':
		case c == '[':
			listed, name = jsonHeader.MatchString(name), ""
		case c == '-' || '0' <= c && c <= '9':
			if jsonSecret.MatchString(name) {
				token, _ = scrubString([]byte(`""`), true)
			}
			name = ""
		default:
			listed, name = false, ""
		}
		out = append(out, token...)
	}
	return append(out, text[end:]...)
}

// scrubString scrubs a string of JSON, of which nothing is left if it is a secret, and returns it also without its quotes, as it was.
func scrubString(quoted []byte, secret bool) (scrubbed []byte, plain string) {
	if err := json.Unmarshal(quoted, &plain); err != nil {
		return []byte(`"` + removed + `"`), "" // of JSON that is valid there is none
	}
	kept := removed
	if !secret {
		kept = string(Scrub([]byte(plain)))
	}
	if kept == plain {
		return quoted, plain
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(kept); err != nil {
		return []byte(`"` + removed + `"`), plain // strings can be encoded
	}
	return bytes.TrimSpace(b.Bytes()), plain
}
