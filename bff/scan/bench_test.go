package scan_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/playhead/playhead/bff/scan"
)

// BenchmarkSkip compares reading a message of one heartbeat with jsontext.
func BenchmarkSkip(b *testing.B) {
	message := []byte(`{"seq":7,"sent_at":"2026-03-01T20:16:00+01:00","heartbeats":[{"object":{"id":"1000","type":1},"kind":"progress",` +
		`"position_ms":15000,"duration_ms":5400000,"event_time":"2026-03-01T20:15:15.250+01:00",` +
		`"session":"8f14e45f-ceea-467f-ab94-1e8b7d1c02aa","device":"tv-livingroom","meta":{"quality":"1080p","subtitles":"en"}}]}`)
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			in := scan.New(message)
			in.Skip()
			if err := in.End(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("jsontext", func(b *testing.B) {
		var body bytes.Reader
		d := jsontext.NewDecoder(&body)
		for b.Loop() {
			body.Reset(message)
			d.Reset(&body)
			for {
				if _, err := d.ReadToken(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
