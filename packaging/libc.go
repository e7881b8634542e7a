package main

import (
	"debug/elf"
	"fmt"
	"strconv"
	"strings"
)

// libcVersion returns the newest version of the C library of which a program uses a
// symbol: it does not start with an older one.
func libcVersion(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	newest := -1
	for _, s := range symbols {
		minor, is := strings.CutPrefix(s.Version, "GLIBC_2.")
		if !is {
			continue
		}
		// Of 2.3.4 the 3 counts: all that old are the same today.
		minor, _, _ = strings.Cut(minor, ".")
		if n, err := strconv.Atoi(minor); err == nil {
			newest = max(newest, n)
		}
	}
	if newest < 0 {
		return "", fmt.Errorf("%s uses no versioned symbol of glibc", program)
	}
	return fmt.Sprintf("2.%d", newest), nil
}
