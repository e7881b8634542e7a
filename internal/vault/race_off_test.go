//go:build !race

package vault_test

const raceEnabled = false
