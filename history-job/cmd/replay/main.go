// Command replay brings a trace of viewings in through the door of history-service,
// as the heartbeats that players would have sent. `replay dead` drives again what
// could not be archived.
package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/internal/run"
)

type flags struct {
	Trace    string        `arg:"" help:"CSV file, gzip if it ends in .gz, with the columns user_id, video_id, time_ms, play_time_ms, duration_ms."`
	Service  string        `help:"Address of history-service." default:"127.0.0.1:7070"`
	Shift    bool          `help:"Move the trace so that its last heartbeat is now." default:"true" negatable:""`
	Speed    float64       `help:"So many times faster than the trace's own time; 0 is as fast as the service takes it."`
	Limit    int           `help:"Send at most this many heartbeats, of whole viewings; 0 is all."`
	Streams  int           `help:"gRPC streams side by side." default:"16"`
	Window   int           `help:"Heartbeats of a batch, at most 1000." default:"200"`
	Patience time.Duration `help:"How long to go on when the service does not answer, or not for a batch." default:"60s"`
}

func main() { run.Main(replayed) }

func replayed(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	if len(args) > 0 && args[0] == "dead" {
		return dead(ctx, args[1:], getenv, out)
	}
	return send(ctx, args, getenv, out)
}

func send(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("replay", &f, args, getenv, out); err != nil {
		return err
	}
	vs, err := replay.ReadFile(f.Trace)
	if err != nil {
		return err
	}
	plan := replay.Expand(vs, f.Limit)
	if f.Shift {
		plan.EndAt(time.Now().UnixMilli())
	}
	conn, err := grpc.NewClient(f.Service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", f.Service, err)
	}
	defer conn.Close()
	d := &replay.Driver{Conn: conn, Streams: f.Streams, Window: f.Window, Speed: f.Speed, Patience: f.Patience}
	began := time.Now()
	done := replay.Progress(os.Stderr, plan.Len(), d)
	err = d.Run(ctx, plan)
	done()
	report(out, d, time.Since(began))
	if err != nil {
		return fmt.Errorf("ended after %d of %d heartbeats: %w", d.Acked(), plan.Len(), err)
	}
	return nil
}

func report(out io.Writer, d *replay.Driver, took time.Duration) {
	fmt.Fprintf(out, "%d heartbeats acknowledged in %.2f s, %.0f/s\n", d.Acked(), took.Seconds(), float64(d.Acked())/took.Seconds())
	statuses := d.Statuses()
	for _, s := range slices.Sorted(maps.Keys(statuses)) {
		fmt.Fprintf(out, "  %-12s %d\n", replay.StatusName(s), statuses[s])
	}
}
