package printable

import "strconv"

// JSON returns JSON whose texts have nothing that would disturb a terminal or a table: the program at the other end of a
// socket may be anybody's. Ends of lines and tabs become spaces, other control characters question marks. It changes valid JSON to
// valid JSON of the same shape.
func JSON(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		n, instead := 1, byte(0)
		switch c := raw[i]; {
		case c == 0x7f:
			instead = '?'
		case c == 0xc2 && i+1 < len(raw) && raw[i+1] >= 0x80 && raw[i+1] < 0xa0: // U+0080 to U+009F
			n, instead = 2, '?'
		case c == '\\' && i+1 < len(raw):
			n, instead = escaped(raw[i:])
		}
		if instead != 0 {
			out = append(out, instead)
		} else {
			out = append(out, raw[i:i+n]...)
		}
		i += n
	}
	return out
}

// escaped returns how long the escape is that s, of two bytes at least, begins with, and what takes its place if it stands for what is not plain.
func escaped(s []byte) (n int, instead byte) {
	switch s[1] {
	case 'n', 'r', 't':
		return 2, ' '
	case 'b', 'f':
		return 2, '?'
	}
	if s[1] != 'u' || len(s) < 6 {
		return 2, 0
	}
	r, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	switch {
	case err != nil:
		return 2, 0
	case r == '\n' || r == '\r' || r == '\t':
		return 6, ' '
	case r < ' ' || r >= 0x7f && r < 0xa0:
		return 6, '?'
	}
	return 6, 0
}
