package count_test

import (
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
)

// BenchmarkMessage encodes and decodes messages of 100 statements. An operation is a statement.
func BenchmarkMessage(b *testing.B) {
	const at = 1_700_000_000_000
	statements := make([]count.Statement, 100)
	for i := range statements {
		statements[i] = count.Statement{
			UID: fmt.Sprintf("user-%08d", i*7919), Object: history.Object{ID: fmt.Sprint(1_000_000 + i*104729), Type: 1}, CellTime: at + int64(i),
			Played: []history.Played{{At: at - int64(i)*1000, Plays: 1, Watched: 1_500_000}},
		}
	}
	size := 0
	for n := 0; n < b.N; n += len(statements) {
		m := count.AppendMessage(nil, statements)
		if _, err := count.Message(m); err != nil {
			b.Fatal(err)
		}
		size = len(m)
	}
	b.ReportMetric(float64(size)/float64(len(statements)), "B/statement")
}
