package allinone_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPlayers repeats complaints about comparable systems, over both transports.
func TestPlayers(t *testing.T) {
	h := stage(t)
	cases := []struct {
		name string
		play func(*player)
	}{
		{"B1 two offline sessions", (*player).offlineSessions},
		{"B2 a waking device", (*player).wakingDevice},
		{"B3 failed and short starts", (*player).shortStarts},
		{"B5 a lost connection", (*player).lostConnection},
		{"B6 past the end, and a stop", (*player).pastTheEnd},
		{"B7 latest and furthest", (*player).latestAndFurthest},
		{"B8 clocks", (*player).clocks},
		{"B9 one completed play", (*player).oneCompletedPlay},
		{"B10 the same upload twice", (*player).sameUploadTwice},
		{"B12 one object twice in a batch", (*player).twiceInABatch},
		{"B14 deleted things", (*player).deletedThings},
		{"B15 watched time", (*player).watchedTime},
		{"B17 another user", (*player).anotherUser},
		{"incognito", (*player).incognito},
	}
	for _, door := range []string{"http", "stream"} {
		for i, c := range cases {
			t.Run(c.name+" over "+door, func(t *testing.T) {
				c.play(h.player(t, door+"."+string(rune('a'+i)), door))
			})
		}
	}
}

// offlineSessions arrive late and in any order: the older client time loses.
func (p *player) offlineSessions() {
	p.send("stored", at(2*time.Hour, "stop", minutes(40)).of("tablet", time.Hour, 0))
	late := p.send("stale", at(3*time.Hour, "stop", minutes(10)).of("phone", time.Hour, 0))
	if r := p.sees(); r.Position != minutes(40) || r.Session != "tablet" || *late[0].Record != *r {
		p.Errorf("got %+v, was told %+v", r, late[0].Record)
	}
	p.send("stored", at(time.Hour, "stop", minutes(20)).of("phone", 2*time.Hour, 0))
	if r := p.sees(); r.Position != minutes(20) || r.Session != "phone" || r.Furthest != minutes(40) {
		p.Errorf("after a newer one: %+v", r)
	}
}

// wakingDevice reports its position before sleep, with its known etag.
func (p *player) wakingDevice() {
	known := p.send("stored", at(2*time.Hour, "pause", minutes(10)).of("tv", time.Hour, 0))[0].Record.ETag
	p.send("stored", at(time.Hour, "stop", minutes(40)).of("phone", time.Hour, 0))
	before := p.sees()
	wakes := at(time.Second, "progress", minutes(10)).of("tv", 2*time.Hour, 0)
	wakes.IfMatch = known
	if told := p.send("conflict", wakes)[0].Record; told == nil || *told != *before {
		p.Errorf("told %+v, want %+v", told, before)
	}
	if after := p.sees(); *after != *before {
		p.Errorf("overwritten with %+v", after)
	}
	goesOn := at(0, "progress", minutes(41)).of("tv", 2*time.Hour, 0)
	goesOn.IfMatch = before.ETag
	p.send("stored", goesOn)
	p.send("unchanged", goesOn) // sent again
}

// shortStarts keep the position: a failed one, one of a second, one that goes back and stops. Seeks and longer
// plays move it.
func (p *player) shortStarts() {
	p.send("stored", at(time.Hour, "stop", minutes(30)).of("s1", time.Hour, 0))
	failed := at(50*time.Minute, "stop", 0).of("s2", time.Second, 0)
	failed.Failed = true
	p.send("unchanged", failed)
	p.send("stored stored", at(40*time.Minute, "start", 0).of("s3", 0, 0), at(40*time.Minute-time.Second, "stop", 1000).of("s3", time.Second, 0))
	if r := p.sees(); r.Position != minutes(30) || r.State != "stopped" {
		p.Errorf("after a start of a second: %+v", r)
	}
	p.send("stored", at(30*time.Minute, "progress", 3000).of("", 0, 0)) // from the beginning, without a start
	if r := p.sees(); r.Position != minutes(30) {
		p.Errorf("after three seconds: %+v", r)
	}
	p.send("stored stored", at(20*time.Minute, "start", 0).of("s4", 0, 0), at(19*time.Minute, "progress", minutes(1)).of("s4", time.Minute, 0))
	if r := p.sees(); r.Position != minutes(1) || r.Furthest != minutes(30) {
		p.Errorf("after a minute: %+v", r)
	}
	p.send("stored stored", at(10*time.Minute, "start", 0).of("s5", 0, 0), at(10*time.Minute-time.Second, "seek", 5000).of("s5", time.Second, 0))
	if r := p.sees(); r.Position != 5000 {
		p.Errorf("after a seek: %+v", r)
	}
}

// lostConnection keeps the last reported position, without extrapolation.
func (p *player) lostConnection() {
	p.send("stored", at(time.Hour, "progress", minutes(20)).of("s1", time.Hour, 0))
	if p.conn != nil {
		_ = p.conn.CloseNow()
		p.conn = nil
	}
	first := p.sees()
	p.send("stored", beat{Object: thing{"8", 1}, Kind: "stop", Position: 1, EventTime: stamp(time.Now())})
	if r := p.sees(); r.Position != minutes(20) || r.State != "playing" || *r != *first {
		p.Errorf("got %+v, was %+v", r, first)
	}
}

// pastTheEnd limits positions to the end. The last stop beats progress of its time, in any order.
func (p *player) pastTheEnd() {
	r := p.send("stored", at(time.Hour, "progress", minutes(61)))[0].Record
	if r.Position != minutes(60) || r.Furthest != minutes(60) {
		p.Errorf("got %+v", r)
	}
	stop, progress := at(time.Minute, "stop", minutes(20)), at(time.Minute, "progress", minutes(21))
	progress.EventTime = stop.EventTime
	p.send("stored", progress)
	p.send("stored", stop)
	p.send("stale", progress)
	if r := p.sees(); r.Position != minutes(20) || r.State != "stopped" {
		p.Errorf("got %+v", r)
	}
}

func (p *player) latestAndFurthest() {
	p.send("stored stored", at(time.Hour, "progress", minutes(40)), at(30*time.Minute, "stop", minutes(15)))
	for _, target := range []string{"GET /v1/history/1/7", "GET /v1/history", "GET /v1/continue"} {
		status, text := p.ask(target, "")
		if status != http.StatusOK || !strings.Contains(text, `"position_ms":900000`) || !strings.Contains(text, `"furthest_ms":2400000`) {
			p.Errorf("%s: %d %s", target, status, text)
		}
	}
}

// clocks an hour ahead are corrected by sent_at or cut to now. A time without an offset, or a number, is refused.
func (p *player) clocks() {
	ahead := at(-time.Hour+time.Minute, "stop", minutes(20))
	text := `{"heartbeats":[{"object":{"id":"7","type":1},"kind":"stop","position_ms":1200000,"event_time":"` + ahead.EventTime + `"}],"sent_at":"` + stamp(time.Now().Add(time.Hour)) + `"}`
	if a := p.post(text); len(a.Results) != 1 || a.Results[0].Status != "stored" {
		p.Fatalf("got %+v", a)
	}
	if age := time.Since(p.sees().EventTime); age < 59*time.Second || age > 2*time.Minute {
		p.Errorf("stored as of %v ago, want a minute", age)
	}
	p.send("stored", at(-time.Hour, "stop", minutes(21)))
	if age := time.Since(p.sees().EventTime); age < 0 || age > time.Minute {
		p.Errorf("stored as of %v ago, want now", age)
	}
	zoneless := at(0, "stop", minutes(22))
	zoneless.EventTime = strings.TrimSuffix(zoneless.EventTime, "Z")
	if r := p.send("invalid", zoneless); r[0].Error == nil || r[0].Error.Field != "event_time" {
		p.Errorf("without an offset: %+v", r)
	}
	if r := p.sees(); r.Position != minutes(21) {
		p.Errorf("got %+v", r)
	}
}

// oneCompletedPlay reports its end in many ways and counts once.
func (p *player) oneCompletedPlay() {
	p.send("stored stored", at(30*time.Minute, "start", 0), at(10*time.Minute, "progress", minutes(53.9)))
	if r := p.sees(); r.Plays != 0 {
		p.Errorf("before the end: %+v", r)
	}
	p.send("stored stored stored", at(9*time.Minute, "pause", minutes(54)), at(8*time.Minute, "progress", minutes(57)), at(7*time.Minute, "finish", minutes(60)))
	stop := at(6*time.Minute, "stop", minutes(60))
	p.send("stored", stop)
	p.send("unchanged", stop)
	if r := p.sees(); r.Plays != 1 || r.CompletedAt.Before(time.Now().Add(-7*time.Minute)) {
		p.Errorf("got %+v", r)
	}
}

// sameUploadTwice adds nothing, and each real viewing counts.
func (p *player) sameUploadTwice() {
	var viewings []beat
	for i := range 5 {
		viewings = append(viewings, at(time.Duration(10-i)*time.Hour, "finish", minutes(60)).of("s"+string(rune('0'+i)), time.Hour, minutes(50)))
	}
	p.send("stored stored stored stored stored", viewings...)
	first := p.sees()
	if first.Plays != 5 || first.Watched != minutes(250) {
		p.Errorf("got %+v", first)
	}
	p.send("stale stale stale stale unchanged", viewings...)
	if again := p.sees(); *again != *first {
		p.Errorf("sent again: %+v, was %+v", again, first)
	}
}

func (p *player) twiceInABatch() {
	p.send("stored stored stored", at(time.Hour, "progress", minutes(20)), at(time.Minute, "stop", minutes(40)), at(30*time.Minute, "progress", minutes(50)))
	if r := p.sees(); r.Position != minutes(40) || r.Furthest != minutes(50) {
		p.Errorf("got %+v", r)
	}
}

// deletedThings stay deleted despite late and resent heartbeats.
func (p *player) deletedThings() {
	upload := at(time.Hour, "finish", minutes(60))
	p.send("stored", upload)
	if status, text := p.ask("DELETE /v1/history/1/7", ""); status != http.StatusOK {
		p.Fatalf("delete: %d %s", status, text)
	}
	p.send("stale", upload)
	p.send("stale", at(time.Minute, "progress", minutes(5)))
	if r := p.sees(); r != nil {
		p.Errorf("after a delete: %+v", r)
	}
	time.Sleep(2 * time.Millisecond) // the delete covers events of its own millisecond
	if r := p.send("stored", at(0, "progress", minutes(5)))[0].Record; r.Plays != 0 || r.Furthest != minutes(5) {
		p.Errorf("watched again: %+v", r)
	}
	if status, text := p.ask("DELETE /v1/history", ""); status != http.StatusOK {
		p.Fatalf("clear: %d %s", status, text)
	}
	p.send("cleared", upload)
	if r := p.sees(); r != nil {
		p.Errorf("after a clear: %+v", r)
	}
}

// watchedTime is at most the elapsed time multiplied by the speed, without pauses.
func (p *player) watchedTime() {
	p.send("stored", at(2*time.Hour, "progress", minutes(10)).of("s1", 10*time.Minute, minutes(9)))
	p.send("stored", at(time.Hour, "pause", minutes(10)).of("s1", 70*time.Minute, minutes(9)))
	if r := p.sees(); r.Watched != minutes(9) {
		p.Errorf("paused: %+v", r)
	}
	fast := at(50*time.Minute, "progress", minutes(30)).of("s2", 10*time.Minute, minutes(45))
	fast.Speed = 1.5
	p.send("stored", fast)
	if r := p.sees(); r.Watched != minutes(9+15) {
		p.Errorf("ten minutes at 1.5: %+v", r)
	}
	p.send("stored", at(40*time.Minute, "progress", minutes(40)).of("s3", time.Minute, minutes(30)))
	if r := p.sees(); r.Watched != minutes(9+15+1) {
		p.Errorf("one minute: %+v", r)
	}
	var beside []beat // ten sessions of one device in the same half hour
	said := at(time.Minute, "progress", minutes(41))
	for i := range 10 {
		beside = append(beside, said.of("b"+string(rune('0'+i)), 30*time.Minute, minutes(30)))
	}
	p.send(strings.TrimSpace(strings.Repeat("stored ", 10)), beside...)
	if r := p.sees(); r.Watched != minutes(9+15+1+10*30) {
		p.Errorf("ten sessions of half an hour: %+v", r)
	}
	phone := at(time.Minute, "stop", minutes(41)).of("c", 30*time.Minute, minutes(30))
	phone.Device = "phone"
	p.send("stored", phone)
	if r := p.sees(); r.Watched != minutes(9+15+1+11*30) {
		p.Errorf("on another device: %+v", r)
	}
	wrong := at(0, "progress", minutes(41))
	wrong.Speed = 4.5
	if r := p.send("invalid", wrong); r[0].Error.Field != "speed" {
		p.Errorf("too fast: %+v", r[0].Error)
	}
}

// anotherUser is neither written, by a body field, nor read.
func (p *player) anotherUser() {
	p.send("stored", at(time.Hour, "stop", minutes(20)))
	other := p.stage.player(p.T, "other."+p.door, p.door)
	text := `{"heartbeats":[{"uid":"http.a","object":{"id":"7","type":1},"kind":"stop","position_ms":1,"event_time":"` + stamp(time.Now()) + `"}]}`
	a := other.post(text)
	refused := append(a.Errors, failure{})[0]
	if a.Error != nil {
		refused = *a.Error
	}
	if refused.Field != "body.heartbeats[0].uid" || len(a.Results) != 0 {
		p.Errorf("a uid in the body: %+v", a)
	}
	if r := other.sees(); r != nil {
		p.Errorf("another user sees %+v", r)
	}
}

func (p *player) incognito() {
	secret := at(time.Hour, "finish", minutes(60))
	secret.Incognito = true
	if r := p.send("paused", secret); r[0].Record != nil {
		p.Errorf("told %+v", r[0].Record)
	}
	if r := p.sees(); r != nil {
		p.Errorf("kept %+v", r)
	}
}
