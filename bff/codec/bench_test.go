package codec_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func upload(n int) []byte {
	beats := make([]string, n)
	for i := range beats {
		beats[i] = fmt.Sprintf(`{"object":{"id":"%d","type":1},"kind":"progress","position_ms":%d,"duration_ms":5400000,`+
			`"event_time":"2026-03-01T20:15:%02d.250+01:00","session":"8f14e45f-ceea-467f-ab94-1e8b7d1c02aa",`+
			`"device":"tv-livingroom","meta":{"quality":"1080p","subtitles":"en"}}`, 1000+i, i*15000, i%60)
	}
	return []byte(`{"sent_at":"2026-03-01T20:16:00+01:00","heartbeats":[` + strings.Join(beats, ",") + `]}`)
}

func BenchmarkDecodeBatch(b *testing.B) {
	body := upload(100)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := codec.DecodeBatch("u1", body); err != nil {
			b.Fatal(err)
		}
	}
	perHeartbeat(b, 100)
}

func BenchmarkResults(b *testing.B) {
	batch, err := codec.DecodeBatch("u1", upload(100))
	if err != nil {
		b.Fatal(err)
	}
	resp := &historyv1.ApplyResponse{}
	for range 100 {
		resp.Statuses = append(resp.Statuses, historyv1.Status_STATUS_STORED)
		resp.Records = append(resp.Records, &historyv1.Item{
			Object: &historyv1.Object{Id: "1000", Type: 1}, State: 1, EventTimeMs: 1_772_000_000_000, PositionMs: 1,
			DurationMs: 5_400_000, FurthestMs: 1, Session: "8f14e45f-ceea-467f-ab94-1e8b7d1c02aa",
			Device: "tv-livingroom", Meta: map[string]string{"quality": "1080p", "subtitles": "en"}, Etag: 1 << 60,
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		results, err := batch.Results(resp)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(results); err != nil {
			b.Fatal(err)
		}
	}
	perHeartbeat(b, 100)
}

func perHeartbeat(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/heartbeat")
}
