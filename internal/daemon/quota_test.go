package daemon

import "testing"

func TestQuotaOf(t *testing.T) {
	for percent, want := range map[int]int{100: 0, 50: 2048, 1: 40} {
		if got := quotaOf(4096, percent); got != want {
			t.Errorf("%d %%: %d", percent, got)
		}
	}
	if quotaOf(64, 1) != 1 {
		t.Error("a quota of nothing")
	}
}
