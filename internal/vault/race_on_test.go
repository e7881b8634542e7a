//go:build race

package vault_test

const raceEnabled = true
