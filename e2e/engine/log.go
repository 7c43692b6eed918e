package engine

import (
	"bufio"
	"bytes"
	"io"
	"os"
)

// logged reports whether the process has written mark in a line since its
// last start. It reads no further than that, for logs grow large.
func (n Node) logged(mark string) (bool, error) {
	f, err := os.Open(n.Log)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := f.Seek(n.LogFrom, io.SeekStart); err != nil {
		return false, err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if bytes.Contains(lines.Bytes(), []byte(mark)) {
			return true, nil
		}
	}
	return false, lines.Err()
}

// logTail is the end of the output since the last start, to quote in an error.
func (n Node) logTail() string {
	f, err := os.Open(n.Log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(end-n.LogFrom, 16<<10))
	if _, err := f.ReadAt(b, end-int64(len(b))); err != nil {
		return err.Error()
	}
	return "end of " + n.Log + ":\n" + tail(b)
}

// tail is the last lines of b.
func tail(b []byte) string {
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}
