package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
)

// What is kept of errors leaves room for what else is kept of the node, whatever is in their texts.
func TestErrorsThatAreKept(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("<", 400)} {
		list := make([]event.Entry, keptErrors)
		for i := range list {
			list[i] = event.Entry{Code: event.LaneRefused, Subject: "peer " + text[:5], Text: text}
		}
		kept := fitting(list, depot.MaxMeta/2)
		data, err := json.Marshal(kept)
		if err != nil || len(data) > depot.MaxMeta/2+2 || len(kept) < 8 || text == "short" && len(kept) < keptErrors {
			t.Errorf("%d entries of %d bytes are kept: %v", len(kept), len(data), err)
		}
	}
}
