package bench

import (
	"context"
	"fmt"
	"strconv"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// newRecords returns viewings of two heartbeats, twenty of each user: an import.
func newRecords(n int) []replay.Viewing {
	vs := make([]replay.Viewing, n)
	for i := range vs {
		vs[i] = replay.Viewing{
			UID: "new" + strconv.Itoa(i/20), Object: history.Object{ID: strconv.Itoa(i % 20), Type: 1},
			At: start + int64(i), Played: 10_000, Duration: 600_000,
		}
	}
	return vs
}

// named returns viewings of other users.
func named(prefix string, vs []replay.Viewing) []replay.Viewing {
	for i := range vs {
		vs[i].UID = prefix + vs[i].UID
	}
	return vs
}

// MeasureFill compares players after many new records with players before them. It has their rate, and the 99th
// percentile of their latency at 20,000 a second. It adds the process's memory, in MiB.
func (e *Embedded) MeasureFill(ctx context.Context, fill *Load, quick bool) (Figures, error) {
	beats, paced := 1_000_000, 200_000
	if quick {
		beats, paced = 200_000, 60_000
	}
	return e.turn(ctx, func(a *allInOne) (Figures, error) {
		players := func(when string) (rate, p99, memory float64, err error) {
			closed := NewLoad(named(when, LongViewings(beats)), payload)
			open := NewLoad(named(when+"paced", LongViewings(paced)), payload)
			f, _, err := a.acknowledged(ctx, closed, GRPC, small)
			if err != nil {
				return 0, 0, 0, err
			}
			g, _, err := a.acknowledged(ctx, open, GRPC, fast)
			return f["rate"], g["p99"], max(f["memory"], g["memory"]), err
		}
		rate, p99, _, err := players("before")
		if err != nil {
			return nil, fmt.Errorf("before the fill: %w", err)
		}
		f, _, err := a.acknowledged(ctx, fill, GRPC, small)
		if err != nil {
			return nil, fmt.Errorf("the fill: %w", err)
		}
		rateAfter, p99After, memory, err := players("after")
		if err != nil {
			return nil, fmt.Errorf("after the fill: %w", err)
		}
		f["after rate"], f["after p99"], f["fill memory"] = rateAfter/rate, p99After/p99, max(f["memory"], memory)
		return f, nil
	})
}
