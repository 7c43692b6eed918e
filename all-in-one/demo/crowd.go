package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// crowd is the number of simulated players while /flow has viewers.
const crowd = 12

// every is the report interval of each, in seconds: short enough to show activity, long enough to cost next to nothing.
const every = 4

// play runs the crowd until ctx is done. Its players connect through the edge and play briefly.
func play(ctx context.Context, p *allinone.Process) {
	var players sync.WaitGroup
	for n := range crowd {
		players.Go(func() {
			if run.Sleep(ctx, rand.N(5*time.Second)) { // spread the starts
				playOne(ctx, p, fmt.Sprintf("crowd-%d", n))
			}
		})
	}
	players.Wait()
}

func playOne(ctx context.Context, p *allinone.Process, uid string) {
	http := &http.Client{Transport: &http.Transport{}}
	defer http.CloseIdleConnections()
	c, err := client.New(client.Config{
		URL: "http://" + p.HTTP(), Device: "crowd", NoRecords: true, HTTP: http,
		Token:   func(context.Context) (string, error) { return p.Token(uid, time.Hour) },
		Changed: func(*historyv1.Change) {},
	})
	if err != nil {
		return // the demo continues without
	}
	var connection sync.WaitGroup
	connection.Go(func() { _ = c.Run(ctx) })
	defer connection.Wait()
	for view(ctx, c) {
	}
}

// view plays something for some seconds. One in eight players leaves without a stop, and its key's hold expires.
func view(ctx context.Context, c *client.Client) bool {
	length := every * (2 + rand.N(5))
	beat := &historyv1.Heartbeat{
		ObjectId: fmt.Sprint(rand.N(1000)), ObjectType: video, Kind: historyv1.Kind_KIND_START,
		Session: fmt.Sprint(rand.Uint64()), DurationMs: time.Hour.Milliseconds(),
	}
	for second := 0; second < length; second += every {
		if second > 0 {
			beat.Kind = historyv1.Kind_KIND_PROGRESS
		}
		if !report(c, beat, second) || !run.Sleep(ctx, every*time.Second) {
			return false
		}
	}
	if beat.Kind = historyv1.Kind_KIND_STOP; rand.N(8) > 0 && !report(c, beat, length) {
		return false
	}
	return run.Sleep(ctx, time.Second+rand.N(2*time.Second))
}

func report(c *client.Client, beat *historyv1.Heartbeat, second int) bool {
	beat.EventTimeMs, beat.PositionMs = time.Now().UnixMilli(), int64(second)*1000
	beat.WatchedMs = beat.PositionMs
	return c.Report(beat) == nil
}

// viewer is a fictional user with a presentable history. The trace's users are real: their videos have numbers,
// not titles.
const viewer = "ada"

// Object types by the pages' names.
const (
	video   = 1
	episode = 2
	audio   = 3
	article = 4
)

// viewing is one of the viewer's: its age, device and positions. It finished if to equals of.
type viewing struct {
	ago          time.Duration
	device       string
	typ          uint32
	id           string
	meta         map[string]string
	from, to, of int64 // minutes
}

const (
	tv    = "Living room TV"
	phone = "Phone"
	pad   = "Tablet"
)

func titled(title, genre string) map[string]string {
	return map[string]string{"title": title, "genre": genre, "image": picture(title, genre)}
}

func part(series string, number int, title, genre string) map[string]string {
	return map[string]string{
		"title": title, "series": series, "season": "1", "episode": fmt.Sprint(number), "genre": genre, "image": picture(series, genre),
	}
}

// picture is the address of a poster that the pages draw.
func picture(title, genre string) string {
	return "assets/poster.svg?" + url.Values{"title": {title}, "genre": {genre}}.Encode()
}

var viewings = []viewing{
	{26 * time.Hour * 24, tv, video, "salt-road", titled("The Salt Road", "drama"), 0, 104, 104},
	{19 * time.Hour * 24, tv, episode, "harbour-1-1", part("Harbour Lights", 1, "Fog", "drama"), 0, 52, 52},
	{18 * time.Hour * 24, tv, episode, "harbour-1-2", part("Harbour Lights", 2, "The Pilot Boat", "drama"), 0, 49, 49},
	{12 * time.Hour * 24, pad, article, "maps", titled("On Maps of Places That Are Gone", "essay"), 0, 9, 14},
	{9 * time.Hour * 24, tv, episode, "orchard-1-1", part("The Orchard", 1, "Grafting", "family"), 0, 27, 27},
	{8 * time.Hour * 24, phone, episode, "orchard-1-2", part("The Orchard", 2, "Frost", "family"), 0, 26, 26},
	{5 * time.Hour * 24, phone, audio, "nocturnes", titled("Nocturnes, Complete", "music"), 0, 71, 96},
	{75 * time.Hour, phone, audio, "keepers-book", titled("The Keeper’s Book, Read Aloud", "thriller"), 0, 205, 612},
	{3 * time.Hour * 24, tv, episode, "harbour-1-3", part("Harbour Lights", 3, "Night Tide", "drama"), 0, 18, 51},
	{70 * time.Hour, phone, episode, "harbour-1-3", part("Harbour Lights", 3, "Night Tide", "drama"), 18, 33, 51},
	{50 * time.Hour, phone, audio, "walking-home", titled("Walking Home", "music"), 0, 4, 4},
	{29 * time.Hour, pad, article, "lighthouses", titled("Who Keeps the Lighthouses", "documentary"), 0, 11, 11},
	{26 * time.Hour, phone, episode, "orchard-1-3", part("The Orchard", 3, "First Fruit", "family"), 0, 8, 26},
	{4 * time.Hour, tv, video, "low-water", titled("Low Water", "thriller"), 0, 61, 118},
	{35 * time.Minute, phone, audio, "nocturnes", titled("Nocturnes, Complete", "music"), 71, 80, 96},
}

// heartbeats returns the reports of the viewing's start and end.
func (v *viewing) heartbeats(now time.Time) []*historyv1.Heartbeat {
	end := now.Add(-v.ago)
	played := time.Duration(v.to-v.from) * time.Minute
	begun := &historyv1.Heartbeat{
		Uid: viewer, ObjectId: v.id, ObjectType: v.typ, Kind: historyv1.Kind_KIND_START, Device: v.device, Meta: v.meta,
		Session: fmt.Sprint(v.id, "-", v.from), EventTimeMs: end.Add(-played).UnixMilli(), StartedAtMs: end.Add(-played).UnixMilli(),
		PositionMs: v.from * time.Minute.Milliseconds(), DurationMs: v.of * time.Minute.Milliseconds(),
	}
	ended := proto.CloneOf(begun)
	ended.Kind, ended.EventTimeMs = historyv1.Kind_KIND_STOP, end.UnixMilli()
	ended.PositionMs, ended.WatchedMs = v.to*time.Minute.Milliseconds(), played.Milliseconds()
	if v.to == v.of {
		ended.Kind = historyv1.Kind_KIND_FINISH
	}
	return []*historyv1.Heartbeat{begun, ended}
}

// invent stores the viewer's history through the gRPC server at addr, ending now.
func invent(ctx context.Context, addr string) error {
	conn, err := connect(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	req := &historyv1.ApplyRequest{}
	for _, v := range viewings {
		req.Heartbeats = append(req.Heartbeats, v.heartbeats(time.Now())...)
	}
	resp, err := historyv1.NewHistoryServiceClient(conn).Apply(ctx, req)
	if err != nil {
		return fmt.Errorf("invent a viewer: %w", err)
	}
	for i, s := range resp.GetStatuses() {
		if s != historyv1.Status_STATUS_STORED {
			return fmt.Errorf("invent a viewer: %s is %s", req.Heartbeats[i].GetObjectId(), replay.StatusName(s))
		}
	}
	return nil
}

// watch plays a film on the viewer's TV until it ends or ctx is done, so that the page is not the only device.
func watch(ctx context.Context, p *allinone.Process) {
	c, err := client.New(client.Config{
		URL: "http://" + p.HTTP(), Device: tv, NoRecords: true,
		Token: func(context.Context) (string, error) { return p.Token(viewer, time.Hour) },
	})
	if err != nil {
		return // the demo continues without
	}
	var connection sync.WaitGroup
	connection.Go(func() { _ = c.Run(ctx) })
	defer connection.Wait()
	began := time.Now()
	beat := &historyv1.Heartbeat{
		ObjectId: "north-light", ObjectType: video, Kind: historyv1.Kind_KIND_START, Meta: titled("North Light", "documentary"),
		Session: "north-light-now", StartedAtMs: began.UnixMilli(), DurationMs: (88 * time.Minute).Milliseconds(),
	}
	const at = 31 * time.Minute // where the viewer went on
	for {
		played := time.Since(began)
		beat.EventTimeMs, beat.WatchedMs, beat.PositionMs = time.Now().UnixMilli(), played.Milliseconds(), (at + played).Milliseconds()
		if beat.PositionMs >= beat.DurationMs {
			beat.PositionMs, beat.Kind = beat.DurationMs, historyv1.Kind_KIND_FINISH
		}
		if c.Report(beat) != nil || beat.Kind == historyv1.Kind_KIND_FINISH || !run.Sleep(ctx, every*time.Second) {
			return
		}
		beat.Kind = historyv1.Kind_KIND_PROGRESS
	}
}

func connect(addr string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to the service: %w", err)
	}
	return conn, nil
}
