package supervisor

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/version"
)

// Whatever a program says when it is asked for its versions, it is refused with a short reason, and the supervisor listens
// neither long nor to something that is too long to be told on.
func TestProbe(t *testing.T) {
	text := strings.Repeat("v", 5000)
	for _, c := range []struct {
		says   func(v *version.Set) string // in a script
		reason string
	}{
		{func(*version.Set) string { return "trap '' PIPE; while :; do cat /dev/zero 2>&-; done" }, "it says more than 65536 bytes"},
		{func(v *version.Set) string { v.Version = text; return "" }, "its version has 5000 bytes, at most 100"},
		{func(v *version.Set) string { v.Vault = text; return "" }, "its vault has 5000 bytes, at most 100"},
		{func(*version.Set) string { return "echo '{\"abi\": " + strings.Repeat("1", 5000) + "}'" }, "cannot unmarshal number"},
	} {
		v := version.Own()
		says := c.says(&v)
		if says == "" {
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			says = "echo '" + string(data) + "'"
		}
		s := scripted(t, "", fmt.Sprintf("case \"$*\" in\n*--probe*) %s; exit ;;\nesac\nexec sleep 600", says))
		var err error
		if s.core, err = s.startCore(s.exe); err != nil {
			t.Fatal(err)
		}
		s.upgrade(t.Context(), true)
		s.core.end(syscall.SIGKILL, time.Minute)
		if u := s.upgraded; u.Result != status.UpgradeRefused || !strings.Contains(u.Reason, c.reason) || len(u.Reason) > maxProblem || u.To != (version.Set{}) {
			t.Errorf("%.100s: %.500s, %d bytes", c.reason, fmt.Sprintf("%+v", *u), len(u.Reason))
		}
	}
}
