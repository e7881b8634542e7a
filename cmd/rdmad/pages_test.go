package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commands in the shell blocks of the documents exist, and have the flags and as many arguments as they are given there. Those
// of the quick start are run, by a test of package test.
func TestCommandsOfPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(pages, "../../README.md") {
		if filepath.Base(page) == "quickstart.md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shell := false
		for line := range strings.Lines(string(text)) {
			switch kind, fence := strings.CutPrefix(line, "```"); {
			case fence:
				shell = strings.HasPrefix(kind, "sh")
			case shell:
				for _, command := range exampleCommands(line) {
					seen++
					checkCommandLine(t, page, command)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d commands", seen)
	}
}
