package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// A packed kernel unpacks itself, which takes the guest four seconds and the host
// one. QEMU also starts unpacked ones, if they have an entry for that.

// Where the header of a packed kernel says where its payload is; see the Linux
// documentation of the x86 boot protocol.
const (
	bootSectors       = 0x1f1
	bootMagic         = 0x202
	bootPayload       = 0x248
	bootPayloadLength = 0x24c
	bootHeaderEnd     = 0x250
)

// payload returns the packed part of a kernel if it is in xz's format, or nil.
func payload(kernel []byte) []byte {
	if len(kernel) < bootHeaderEnd || string(kernel[bootMagic:bootMagic+4]) != "HdrS" {
		return nil
	}
	from := (uint64(kernel[bootSectors])+1)*512 + uint64(binary.LittleEndian.Uint32(kernel[bootPayload:]))
	length := uint64(binary.LittleEndian.Uint32(kernel[bootPayloadLength:]))
	const sizeBehind = 4 // the size of the unpacked kernel
	if length < sizeBehind || from+length > uint64(len(kernel)) {
		return nil
	}
	packed := kernel[from : from+length-sizeBehind]
	if !bytes.HasPrefix(packed, []byte("\xfd7zXZ\x00")) {
		return nil
	}
	return packed
}

// startable reports whether QEMU can start an unpacked kernel: whether it is an
// ELF file with a note of where to enter it in 32-bit mode.
func startable(kernel []byte) bool {
	f, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return false
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes := make([]byte, p.Filesz)
		if _, err := p.ReadAt(notes, 0); err == nil && hasEntryNote(notes) {
			return true
		}
	}
	return false
}

// hasEntryNote looks for the note among all notes of an ELF file.
func hasEntryNote(notes []byte) bool {
	const header, entryNote = 12, 18
	padded := func(n uint32) int { return (int(n) + 3) &^ 3 }
	for len(notes) >= header {
		name := binary.LittleEndian.Uint32(notes)
		value := binary.LittleEndian.Uint32(notes[4:])
		kind := binary.LittleEndian.Uint32(notes[8:])
		notes = notes[header:]
		if uint64(padded(name))+uint64(padded(value)) > uint64(len(notes)) {
			return false
		}
		if kind == entryNote && string(notes[:name]) == "Xen\x00" {
			return true
		}
		notes = notes[padded(name)+padded(value):]
	}
	return false
}
