package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rdmad/rdmad/bench/peers/internal/report"
	"github.com/rdmad/rdmad/bench/peers/internal/result"
)

// output is where results are to go. It is tried before anything is measured, which takes long; what was
// there before stays until all of what takes its place is written.
type output struct {
	json, plots string
	// newJSON is the file that becomes json, and stage the directory of the files that go to plots.
	newJSON *os.File
	stage   string
}

// openOutput makes room for the results. part: only a part of everything is measured.
func openOutput(f *flags, part bool) (_ *output, err error) {
	o := &output{json: f.json, plots: f.plots}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	if o.plots != "" {
		whole, err := report.IsWhole(o.plots)
		if err != nil {
			return nil, err
		}
		if part && whole {
			return nil, usage(fmt.Errorf("%s has the page of a whole comparison, and this is a part of one: name another directory (make bench-peers RESULTS=dir)", o.plots))
		}
		if o.stage, err = os.MkdirTemp(o.plots, ".new-"); err != nil {
			return nil, err
		}
	}
	if o.json != "" {
		if o.newJSON, err = os.CreateTemp(filepath.Dir(o.json), ".new-"); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// write puts the results where they belong: each of the two, also if the other one fails.
func (o *output) write(r *result.Results) error {
	return errors.Join(o.writeJSON(r), o.writePlots(r))
}

func (o *output) writeJSON(r *result.Results) error {
	if o.newJSON == nil {
		return nil
	}
	text, err := json.Marshal(r)
	if err == nil {
		_, err = o.newJSON.Write(append(text, '\n'))
	}
	if err == nil {
		err = o.newJSON.Chmod(0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(o.newJSON.Name(), o.json)
}

// writePlots replaces all files of a page: plots of another comparison do not stay beside it.
func (o *output) writePlots(r *result.Results) error {
	if o.plots == "" {
		return nil
	}
	if err := report.Page(o.stage, r); err != nil {
		return err
	}
	for _, name := range report.PageFiles() {
		err := os.Rename(filepath.Join(o.stage, name), filepath.Join(o.plots, name))
		if errors.Is(err, os.ErrNotExist) { // there is none in this comparison
			err = os.Remove(filepath.Join(o.plots, name))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// close removes what is left of the room.
func (o *output) close() (err error) {
	if o.newJSON != nil {
		err = o.newJSON.Close()
		if e := os.Remove(o.newJSON.Name()); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if o.stage != "" {
		err = errors.Join(err, os.RemoveAll(o.stage))
	}
	return err
}
