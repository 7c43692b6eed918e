package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/playhead/playhead/internal/run"
)

type lagFlags struct {
	Limit time.Duration `help:"Age of the oldest unarchived record that is still good." default:"5m"`
	JSON  bool          `name:"json" help:"Print the figures as JSON."`

	adminPorts
}

// Help returns the introduction to --help.
func (*lagFlags) Help() string {
	return `Says how far the archive is behind: the oldest record that is not archived, and what waits in services, in Kafka and for compaction. ` +
		`It ends with an error if the oldest one is older than --limit, or if nobody measures it.`
}

// lags are what waits, over all processes.
type lags struct {
	OldestSeconds  float64 `json:"oldest_seconds"` // of the records that are not archived
	DirtyMarks     float64 `json:"dirty_marks"`
	HeldKeys       float64 `json:"held_keys"`
	KafkaMessages  float64 `json:"kafka_messages"`
	KafkaSeconds   float64 `json:"kafka_seconds"`
	WaitingUsers   float64 `json:"users_waiting_for_compaction"`
	PendingRestore float64 `json:"records_waiting_for_redis"`
}

func lag(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f lagFlags
	if err := run.Parse("playhead lag", &f, args, getenv, out); err != nil {
		return err
	}
	all, err := f.ask(ctx)
	if err != nil {
		return err
	}
	var l lags
	measured := false
	for i := range all {
		p := &all[i]
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.addr, p.err)
		}
		if age, ok := p.most("playhead_job_oldest_mark_age_seconds"); ok { // every job measures all marks
			measured, l.OldestSeconds = true, max(l.OldestSeconds, age)
			l.DirtyMarks = max(l.DirtyMarks, p.sum("playhead_job_dirty_marks"))
		}
		l.add(p)
	}
	if err := l.print(out, f.JSON); err != nil {
		return err
	}
	switch {
	case !measured:
		return fmt.Errorf("no process measures the marks: give the admin port of a job, or wait until Redis answers it")
	case l.OldestSeconds > f.Limit.Seconds():
		return fmt.Errorf("the oldest record has waited %.0f s, %v is good", l.OldestSeconds, f.Limit)
	}
	return nil
}

// add adds what each process knows of its own share.
func (l *lags) add(p *instance) {
	l.HeldKeys += p.sum("playhead_aggregate_held_keys")
	l.KafkaMessages += p.sum("playhead_kafka_consumer_lag_messages")
	l.PendingRestore += p.sum("playhead_job_pending_restores")
	l.KafkaSeconds = max(l.KafkaSeconds, p.sum("playhead_kafka_consumer_lag_seconds"))
	l.WaitingUsers = max(l.WaitingUsers, p.sum("playhead_segments_waiting_users"))
}

func (l *lags) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(out, l)
	}
	for _, line := range []struct {
		what  string
		value float64
		unit  string
	}{
		{"oldest unarchived record", l.OldestSeconds, " s"},
		{"unarchived records", l.DirtyMarks, ""},
		{"held by services", l.HeldKeys, ""},
		{"uncommitted messages", l.KafkaMessages, ""},
		{"oldest uncommitted message", l.KafkaSeconds, " s"},
		{"users waiting for compaction", l.WaitingUsers, ""},
		{"records waiting for Redis", l.PendingRestore, ""},
	} {
		fmt.Fprintf(out, "%-29s %8.0f%s\n", line.what, line.value, line.unit)
	}
	return nil
}
