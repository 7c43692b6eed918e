//go:build e2e

package pipeline_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/e2e/pipeline"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestPush has two devices of one user on two edges, each with its own service. One device's change reaches the
// other through Redis within a second. After an interruption, a device that may have missed something receives a
// resync.
func TestPush(t *testing.T) {
	for name, cluster := range map[string]bool{"single": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			s := pipeline.NewStack(t, pipeline.FromEnv(t, cluster), 2, 0)
			services := s.RPC
			uid := "push" + strings.ToLower(rand.Text()[:8])
			here, there := device(t, s, services[0], uid), device(t, s, services[1], uid)
			here.hears("resync", 5*time.Second)
			there.hears("resync", 5*time.Second)

			var took []time.Duration
			for n := range 20 {
				began := time.Now()
				here.report(fmt.Sprint("film", n))
				there.hears(fmt.Sprint("film", n), time.Second)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			t.Logf("from a heartbeat to the other device: %v at the median, %v at most", took[10], took[19])

			here.delete("film1")
			there.hears("-film1", time.Second)
			here.hears("-film1", time.Second)
			here.delete("")
			there.hears("resync", time.Second)
			here.hears("resync", time.Second)

			killListeners(t, s.Engines.Redis)
			there.hears("resync", 10*time.Second)
			here.hears("resync", 10*time.Second)
			here.report("after")
			there.hears("after", time.Second)

			s.Services[1].Stop(t, 20*time.Second)
			s.StartService(t, services[1])
			there.hears("resync", 20*time.Second)
			here.report("last")
			there.hears("last", time.Second)
			here.silent()
			s.RPC, s.Services = services[:1], slices.Delete(s.Services, 1, 2)
		})
	}
}

// listener is a device behind its own edge.
type listener struct {
	*testing.T
	player     *client.Client
	url, token string
	told       chan string
}

// device starts an edge in front of one service, and a listening device there.
func device(t *testing.T, s *pipeline.Stack, service, uid string) *listener {
	t.Helper()
	s.RPC = []string{service}
	secret := strings.Repeat("s", token.MinSecret)
	d := &listener{T: t, url: "http://" + s.StartBFF(t, secret), told: make(chan string, 1000)}
	var err error
	if d.token, err = token.Mint([]byte(secret), uid, "", time.Hour); err != nil {
		t.Fatal(err)
	}
	d.player, err = client.New(client.Config{
		URL: d.url, Token: func(context.Context) (string, error) { return d.token, nil }, Changed: d.changed,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.player.Run(t.Context()) }() // ends with the test
	return d
}

func (d *listener) changed(c *historyv1.Change) {
	for _, it := range c.Items {
		d.told <- it.Object.Id
	}
	for _, o := range c.Removed {
		d.told <- "-" + o.Id
	}
	if c.Resync {
		d.told <- "resync"
	}
}

func (d *listener) hears(want string, within time.Duration) {
	d.Helper()
	select {
	case got := <-d.told:
		if got != want {
			d.Fatalf("told of %s, want %s", got, want)
		}
	case <-time.After(within):
		d.Fatalf("%s did not come within %v", want, within)
	}
}

func (d *listener) silent() {
	d.Helper()
	select {
	case got := <-d.told:
		d.Errorf("told of %s, want nothing", got)
	default:
	}
}

func (d *listener) report(id string) {
	d.Helper()
	err := d.player.Report(&historyv1.Heartbeat{
		ObjectId: id, ObjectType: 1, Kind: historyv1.Kind_KIND_PAUSE, EventTimeMs: time.Now().UnixMilli(), PositionMs: 60_000, DurationMs: 600_000,
	})
	if err != nil {
		d.Fatal(err)
	}
}

func (d *listener) delete(id string) {
	d.Helper()
	path := "/v1/history"
	if id != "" {
		path += "/1/" + id
	}
	r, err := http.NewRequestWithContext(d.Context(), http.MethodDelete, d.url+path, nil)
	if err != nil {
		d.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		d.Fatalf("delete %q: %v, %v", id, resp, err)
	}
	_ = resp.Body.Close()
}

// killListeners closes every connection with a subscription.
func killListeners(t *testing.T, addrs string) {
	t.Helper()
	for addr := range strings.SplitSeq(addrs, ",") {
		node := goredis.NewClient(&goredis.Options{Addr: addr})
		if err := node.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		_ = node.Close()
	}
}
