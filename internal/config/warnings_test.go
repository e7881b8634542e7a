package config

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	for listen, warned := range map[string]bool{
		"": false, "127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false,
		":1": true, "0.0.0.0:1": true, "192.0.2.1:1": true, "[::]:1": true, "node:1": true,
	} {
		c := mustParse(t, "[observe]\nlisten = \""+listen+"\"\n")
		if w := c.Warnings(); (len(w) == 1 && strings.Contains(w[0], "observe.listen")) != warned || len(w) > 1 {
			t.Errorf("%q: %v", listen, w)
		}
	}
}
