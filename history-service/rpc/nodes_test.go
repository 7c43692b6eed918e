package rpc_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// cluster is a cache of four nodes with settable delays. A call to a silent node fails after two seconds, unless
// the node returns first.
type cluster struct {
	history.Cache

	mu     sync.Mutex
	delay  [4]time.Duration
	silent [4]chan struct{} // closed when the node is back; nil while it answers
	calls  [4]int
}

func nodeOf(uid string) int { return int(history.BucketOf(uid)) % 4 }

// Node returns the node of a bucket.
func (c *cluster) Node(b history.Bucket) string { return fmt.Sprint("node", b%4) }

// wait returns false if the node did not answer.
func (c *cluster) wait(ctx context.Context, node int) bool {
	c.mu.Lock()
	c.calls[node]++
	delay, back := c.delay[node], c.silent[node]
	c.mu.Unlock()
	time.Sleep(delay) // virtual time
	if back == nil {
		return true
	}
	t := time.NewTimer(2 * time.Second)
	defer t.Stop()
	select {
	case <-back:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// waits calls all nodes concurrently, like a real client.
func (c *cluster) waits(ctx context.Context, uids []string) (ok [4]bool) {
	var wg sync.WaitGroup
	for n := range ok {
		if slices.ContainsFunc(uids, func(uid string) bool { return nodeOf(uid) == n }) {
			wg.Go(func() { ok[n] = c.wait(ctx, n) })
		}
	}
	wg.Wait()
	return ok
}

func (c *cluster) Load(ctx context.Context, keys []history.Key) []history.Entry {
	var uids []string
	for _, k := range keys {
		uids = append(uids, k.UID)
	}
	ok := c.waits(ctx, uids)
	entries := c.Cache.Load(ctx, keys)
	for i, k := range keys {
		if !ok[nodeOf(k.UID)] {
			entries[i] = history.Entry{Err: errDown}
		}
	}
	return entries
}

func (c *cluster) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	var uids []string
	for _, w := range writes {
		uids = append(uids, w.Key.UID)
	}
	ok := c.waits(ctx, uids)
	out := c.Cache.Write(ctx, writes)
	for i, w := range writes {
		if !ok[nodeOf(w.Key.UID)] {
			out[i] = history.Outcome{Err: errDown}
		}
	}
	return out
}

func (c *cluster) slow(node int, by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay[node] = by
}

func (c *cluster) silence(nodes ...int) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	back := make(chan struct{})
	for _, n := range nodes {
		c.silent[n] = back
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.silent = [4]chan struct{}{}
		close(back)
	}
}

// pipe is a stream of batches without a network.
type pipe struct {
	grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]
	ctx     context.Context
	batches chan *historyv1.ApplyStreamRequest

	mu      sync.Mutex
	began   time.Time
	answers []answered
}

type answered struct {
	*historyv1.ApplyStreamResponse
	after time.Duration // since the last batch
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) Recv() (*historyv1.ApplyStreamRequest, error) {
	req, ok := <-p.batches
	if !ok {
		return nil, io.EOF
	}
	return req, nil
}

func (p *pipe) Send(resp *historyv1.ApplyStreamResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, answered{resp, time.Since(p.began)})
	return nil
}

func (p *pipe) send(sequence uint64, concurrent bool, hbs ...*historyv1.Heartbeat) {
	p.mu.Lock()
	p.began = time.Now()
	p.mu.Unlock()
	p.batches <- &historyv1.ApplyStreamRequest{Sequence: sequence, Concurrent: concurrent, Batch: &historyv1.ApplyRequest{Heartbeats: hbs}}
}

func (p *pipe) take() []answered {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.answers
	p.answers = nil
	return all
}

// onCluster runs fn with a stream to a service over four nodes, with one warm user each.
func onCluster(t *testing.T, fn func(t *testing.T, c *cluster, p *pipe, s *rpc.Server, uids [4]string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		s := newHouse(t).service(t, func(cfg *rpc.Config) { c.Cache, cfg.Cache = cfg.Cache, c })
		var uids [4]string
		for k := 0; slices.Contains(uids[:], ""); k++ {
			uid := fmt.Sprint("user", k)
			uids[nodeOf(uid)] = uid
		}
		p := &pipe{ctx: t.Context(), batches: make(chan *historyv1.ApplyStreamRequest)}
		ended := make(chan error, 1)
		go func() { ended <- s.ApplyStream(p) }()
		defer func() {
			close(p.batches)
			if err := <-ended; err != nil {
				t.Errorf("the stream ended with %v", err)
			}
			time.Sleep(time.Minute) // lets canceled calls end
		}()
		p.send(1, true, at(uids, 1)...)
		time.Sleep(time.Second)
		p.take()
		fn(t, c, p, s, uids)
	})
}

// at is a heartbeat of each user, at a position in seconds.
func at(uids [4]string, seconds int64) (hbs []*historyv1.Heartbeat) {
	for _, uid := range uids {
		hbs = append(hbs, beat(uid+"/film", historyv1.Kind_KIND_PROGRESS, 10_000-seconds, seconds))
	}
	return hbs
}

// ways returns the status and time of each user's heartbeat, by node.
func ways(t *testing.T, all []answered) (statuses [4]historyv1.Status, after [4]time.Duration) {
	t.Helper()
	for _, a := range all {
		indexes := a.GetIndexes()
		if len(indexes) == 0 {
			indexes = []uint32{0, 1, 2, 3}
		}
		if len(indexes) != len(a.GetResult().GetStatuses()) {
			t.Fatalf("an answer for %v says %v", indexes, a.GetResult())
		}
		for k, i := range indexes {
			if statuses[i] != 0 {
				t.Fatalf("heartbeat %d is answered twice", i)
			}
			statuses[i], after[i] = a.Result.Statuses[k], a.after
		}
	}
	return statuses, after
}

const refused = historyv1.Status_STATUS_UNAVAILABLE

func TestABatchIsAnsweredAtOnceWhenItsPartsAreDone(t *testing.T) {
	onCluster(t, func(t *testing.T, c *cluster, p *pipe, _ *rpc.Server, uids [4]string) {
		c.slow(2, 5*time.Millisecond)
		p.send(2, true, at(uids, 2)...)
		time.Sleep(time.Second)
		all := p.take()
		if len(all) != 1 || len(all[0].Indexes) > 0 || all[0].after > 10*time.Millisecond {
			t.Fatalf("got %v, want one answer within 10ms", all)
		}
		if got, _ := ways(t, all); got != [4]historyv1.Status{stored, stored, stored, stored} {
			t.Errorf("got %v", got)
		}
	})
}

// A slow node delays only its own users.
func TestPartsAreAnsweredWhenTheyAreDone(t *testing.T) {
	onCluster(t, func(t *testing.T, c *cluster, p *pipe, _ *rpc.Server, uids [4]string) {
		c.slow(2, 250*time.Millisecond)
		p.send(2, true, at(uids, 2)...)
		time.Sleep(time.Second)
		got, after := ways(t, p.take())
		if got != [4]historyv1.Status{stored, stored, stored, stored} {
			t.Errorf("got %v", got)
		}
		for n, took := range after {
			if n == 2 && took < 250*time.Millisecond || n != 2 && took != 20*time.Millisecond {
				t.Errorf("node %d: after %v", n, took)
			}
		}
	})
}

// With one silent node of four, the other users are served. Its own users are refused, within half a second at
// first, then at once. They are served again soon after it returns.
func TestASilentNodeStopsItsOwnUsersOnly(t *testing.T) {
	onCluster(t, func(t *testing.T, c *cluster, p *pipe, _ *rpc.Server, uids [4]string) {
		end := c.silence(3)
		for n := range int64(120) {
			p.send(uint64(2+n), true, at(uids, 2+n)...)
			time.Sleep(100 * time.Millisecond)
		}
		all := p.take()
		answers := map[uint64][]answered{}
		for _, a := range all {
			answers[a.Sequence] = append(answers[a.Sequence], a)
		}
		for seq, parts := range answers {
			statuses := map[historyv1.Status]int{}
			for _, a := range parts {
				for _, s := range a.Result.Statuses {
					statuses[s]++
				}
			}
			if statuses[stored] != 3 || statuses[refused] != 1 {
				t.Errorf("batch %d: %v", seq, statuses)
			}
		}
		if len(answers) != 120 {
			t.Errorf("%d of 120 batches were answered", len(answers))
		}
		c.mu.Lock()
		asked := c.calls[3]
		c.mu.Unlock()
		if asked > 20 {
			t.Errorf("the silent node was asked %d times in 12 s", asked)
		}
		end()
		time.Sleep(time.Second)
		p.send(500, true, at(uids, 500)...)
		time.Sleep(time.Second)
		if got, _ := ways(t, p.take()); got != [4]historyv1.Status{stored, stored, stored, stored} {
			t.Errorf("a second after its return: %v", got)
		}
	})
}

// A slow node that answers is waited for. After a while without slow answers, its silence is again detected as fast
// as any.
func TestASlowNodeIsWaitedFor(t *testing.T) {
	onCluster(t, func(t *testing.T, c *cluster, p *pipe, _ *rpc.Server, uids [4]string) {
		sequence := uint64(2)
		send := func(lasts time.Duration) {
			for range lasts / (250 * time.Millisecond) {
				hbs := at(uids, 2)
				for _, h := range hbs { // avoids waiting for the previous answer
					h.ObjectId = fmt.Sprint("film", sequence)
				}
				p.send(sequence, true, hbs...)
				sequence++
				time.Sleep(250 * time.Millisecond)
			}
		}
		c.slow(3, 700*time.Millisecond)
		send(5 * time.Second)
		time.Sleep(2 * time.Second)
		p.take()
		send(10 * time.Second)
		time.Sleep(2 * time.Second)
		refusals := 0
		for _, a := range p.take() {
			for _, s := range a.Result.Statuses {
				if s == refused {
					refusals++
				}
			}
		}
		if refusals > 0 {
			t.Errorf("%d of 40 were refused by a node that answers after 700 ms", refusals)
		}
		c.slow(3, 0)
		send(20 * time.Second)
		p.take()
		defer c.silence(3)()
		p.send(sequence, true, at(uids, 3)...)
		time.Sleep(500 * time.Millisecond)
		if got, _ := ways(t, p.take()); got != [4]historyv1.Status{stored, stored, stored, refused} {
			t.Errorf("half a second after the silence began: %v", got)
		}
	})
}

// The first calls to a silent node are refused within half a second, even without calls to other nodes.
func TestTheFirstToFindANodeSilent(t *testing.T) {
	onCluster(t, func(t *testing.T, c *cluster, p *pipe, s *rpc.Server, uids [4]string) {
		defer c.silence(3)()
		time.Sleep(time.Minute)
		began := time.Now()
		_, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: uids[3], Objects: []*historyv1.Object{{Id: "film", Type: 1}}})
		if took := time.Since(began); err == nil || took > 500*time.Millisecond {
			t.Errorf("a read: %v after %v", err, took)
		}
		p.send(2, true, at(uids, 2)...)
		time.Sleep(50 * time.Millisecond)
		if got, _ := ways(t, p.take()); got != [4]historyv1.Status{stored, stored, stored, refused} {
			t.Errorf("got %v", got)
		}
	})
}

// If all nodes are slow, none is given up, even right after fast answers. Few probes are needed to detect it.
func TestNobodyIsRefusedWhenAllAreLate(t *testing.T) {
	for _, late := range []time.Duration{600 * time.Millisecond, 1200 * time.Millisecond} {
		onCluster(t, func(t *testing.T, c *cluster, p *pipe, _ *rpc.Server, uids [4]string) {
			const batches = 50
			for n := range int64(batches) {
				if n == 10 {
					for node := range 4 {
						c.slow(node, late)
					}
				}
				hbs := at(uids, 2)
				for _, h := range hbs { // avoids waiting for the previous answer
					h.ObjectId = fmt.Sprint("film", n)
				}
				p.send(uint64(2+n), true, hbs...)
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(20 * time.Second)
			for _, a := range p.take() {
				for _, s := range a.Result.Statuses {
					if s == refused {
						t.Fatalf("%v late: batch %d was refused after %v", late, a.Sequence, a.after)
					}
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if most := 2*batches + 20; slices.Max(c.calls[:]) > most {
				t.Errorf("%v late: the nodes were called %v times, want %d at most", late, c.calls, most)
			}
		})
	}
}

// A concurrent batch does not wait long for the previous one; an ordered batch does.
func TestBatchesAreStoredSideBySide(t *testing.T) {
	onCluster(t, func(t *testing.T, c *cluster, p *pipe, _ *rpc.Server, uids [4]string) {
		c.slow(0, 200*time.Millisecond)
		mine, others := at(uids, 2)[:1], at(uids, 2)[1:]
		p.send(2, true, mine...)
		p.send(3, true, others...)
		time.Sleep(time.Second)
		if all := p.take(); len(all) != 2 || all[0].Sequence != 3 || all[0].after != 20*time.Millisecond {
			t.Errorf("side by side: %v", all)
		}
		mine, others = at(uids, 3)[:1], at(uids, 3)[1:]
		p.send(4, false, mine...)
		p.send(5, false, others...)
		time.Sleep(time.Second)
		if all := p.take(); len(all) != 2 || all[0].Sequence != 4 {
			t.Errorf("in order: %v", all)
		}
	})
}

// Cold users of a slow node do not delay the warm-ups of other nodes.
func TestASlowNodeDelaysItsOwnColdUsersOnly(t *testing.T) {
	onCluster(t, func(t *testing.T, c *cluster, _ *pipe, s *rpc.Server, _ [4]string) {
		c.slow(3, 200*time.Millisecond)
		var reading sync.WaitGroup
		read := func(uid string, within time.Duration) {
			reading.Go(func() {
				began := time.Now()
				_, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: uid, Objects: []*historyv1.Object{{Id: "film", Type: 1}}})
				if took := time.Since(began); within > 0 && (err != nil || took > within) {
					t.Errorf("%s of node %d: %v after %v", uid, nodeOf(uid), err, took)
				}
			})
		}
		for k := range 400 {
			if uid := fmt.Sprint("cold", k); nodeOf(uid) == 3 {
				read(uid, 0)
			}
		}
		for k := range 40 {
			time.Sleep(50 * time.Millisecond)
			if uid := fmt.Sprint("other", k); nodeOf(uid) != 3 {
				read(uid, 50*time.Millisecond)
			}
		}
		reading.Wait()
	})
}

// Changes of a slow node's users arrive late and in order; other users do not wait.
func TestASlowNodeDelaysItsOwnNewsOnly(t *testing.T) {
	c := &cluster{}
	bubble(t, func(f *fed) {
		var uids []string
		var who []string
		for node := range 4 {
			for k := 0; len(uids) == node; k++ {
				if uid := fmt.Sprint("user", k); nodeOf(uid) == node {
					uids, who = append(uids, uid), append(who, fmt.Sprintf("%s#%d", uid, node+1))
				}
			}
		}
		v := watch(f.T, f.Server, who...)
		c.slow(3, 250*time.Millisecond)
		for range 3 {
			var changes []history.Change
			for _, uid := range uids {
				changes = append(changes, history.Change{Key: history.Key{UID: uid, Object: history.Object{ID: "film", Type: 1}}})
			}
			if err := f.feed.Announce(t.Context(), changes); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			if got := v.take(); len(got) != 3 || slices.Contains(got, uids[3]+": resync") {
				t.Errorf("at once told %q, want it of all but %s", got, uids[3])
			}
			v.hears(uids[3] + ": resync")
		}
	}, func(cfg *rpc.Config) { c.Cache, cfg.Cache = cfg.Cache, c })
}
