package perfrun

import (
	"errors"
	"strings"
	"testing"
)

// What a member writes that is no error, such as a panic, is not lost, and is not without end. An error it has told its leader.
func TestWordsOfMembers(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"echo 'panic: oh' >&2; echo >&2; echo 'goroutine 1 [running]:' >&2; exit 2", "rdmad: perf: client 0 has written:\npanic: oh\n\ngoroutine 1 [running]:\n"},
		{"echo 'rdmad: perf: enough' >&2; exit 1", ""},
		{"exit 0", ""},
		{"yes | head -c 200000 >&2", "rdmad: perf: client 0 has written:\n" + strings.Repeat("y\n", mostWords/2)},
	} {
		var remarks strings.Builder
		o := &Options{Fabric: Fabric{Name: "tcp"}, Program: "sh", Arguments: []string{"-c", c.script}, Remarks: &remarks}
		m, conn, err := o.startMember(t.Context(), "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(o.dissolve([]*member{m}, false), conn.Close()); err != nil {
			t.Errorf("%s: %v", c.script, err)
		}
		if got := remarks.String(); got != c.want {
			t.Errorf("%s: it is told %d bytes: %.200q", c.script, len(got), got)
		}
	}
}
