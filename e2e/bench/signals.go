package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/internal/run"
)

const (
	watchedSize = 200_000         // heartbeats of a turn, of 147 players
	scrapeEvery = 5 * time.Second // more often than the usual 15 s
)

// Signals measures what watching costs an all-in-one under players on WebSockets. The turns are unwatched, or with a
// collector for the default share of traces and a scrape each five seconds. It prints the ratio of each figure, and
// what a scrape takes.
func Signals(ctx context.Context, out io.Writer, o Options) error {
	collector, err := newCollector(ctx)
	if err != nil {
		return err
	}
	defer collector.server.Stop()
	l := NewLoad(viewingsOf(watchedSize, 100), payload)
	var longest, series float64
	measure := func(args []string, beside func(context.Context, *allInOne, Figures)) func(context.Context) (Figures, error) {
		e := &Embedded{Bin: o.Bin, Dir: o.Dir, Args: args}
		return func(ctx context.Context) (Figures, error) {
			return e.turn(ctx, func(a *allInOne) (Figures, error) {
				scrapes := make(Figures)
				ctx, cancel := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() { defer close(done); beside(ctx, a, scrapes) }()
				f, err := a.measure(ctx, l, WebSocket, each1)
				cancel()
				<-done
				longest, series = max(longest, scrapes["scrape"]), max(series, scrapes["series"])
				return f, err
			})
		}
	}
	sides := [2]side{
		{"unwatched", measure(nil, func(context.Context, *allInOne, Figures) {})},
		{"watched", measure([]string{"--otlp-endpoint", collector.url}, scrape)},
	}
	if err := inTurns(ctx, out, o, sides); err != nil {
		return err
	}
	if collector.spans.Load() == 0 {
		return errors.New("signals: the collector got no spans")
	}
	_, err = fmt.Fprintf(out, "%d spans; longest scrape %.1f ms, %.0f series\n", collector.spans.Load(), longest*1e3, series)
	return err
}

// scrape reads the metrics as Prometheus does. It leaves the longest time in seconds and the number of series.
func scrape(ctx context.Context, a *allInOne, f Figures) {
	for run.Sleep(ctx, scrapeEvery) {
		began := time.Now()
		n, err := seriesOf(ctx, a.admin)
		if err == nil {
			f["scrape"], f["series"] = max(f["scrape"], time.Since(began).Seconds()), float64(n)
		}
	}
}

func seriesOf(ctx context.Context, admin string) (n int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "#") {
			n++
		}
	}
	return n, lines.Err()
}

// collector counts spans.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	url    string
	server *grpc.Server
	spans  atomic.Int64
}

// newCollector serves until its server stops.
func newCollector(ctx context.Context) (*collector, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{url: "http://" + lis.Addr().String(), server: grpc.NewServer()}
	collectorv1.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(lis) }() // ends with Stop
	return c, nil
}

// Export implements the service of a collector.
func (c *collector) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	for _, r := range req.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			c.spans.Add(int64(len(s.GetSpans())))
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}
