// Package hot estimates which users and buckets report most, from a sample of the latest reports.
package hot

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
)

const (
	oneIn  = 4    // reports a sample
	room   = 8192 // samples
	window = time.Minute
	top    = 10 // users and buckets listed
)

// Sampler keeps samples. The zero value is ready, and its methods are safe for concurrent use.
type Sampler struct {
	n    atomic.Uint64
	ring [room]atomic.Pointer[sample]
}

type sample struct {
	uid string
	at  time.Time
}

// Add notes a report of a user.
func (s *Sampler) Add(uid string) {
	if rand.Uint32()%oneIn == 0 { //nolint:gosec // no secret
		s.ring[s.n.Add(1)%room].Store(&sample{strings.Clone(uid), time.Now()})
	}
}

// Load is how reports are spread over users and buckets.
type Load struct {
	Rate    float64  `json:"reports_per_second"` // all reports
	Users   []User   `json:"users"`              // most reports first
	Buckets []Bucket `json:"buckets"`
}

// User is a user with a rate.
type User struct {
	UID    string         `json:"user"`
	Bucket history.Bucket `json:"bucket"`
	Rate   float64        `json:"reports_per_second"`
}

// Bucket is a bucket with a rate.
type Bucket struct {
	Bucket history.Bucket `json:"bucket"`
	Rate   float64        `json:"reports_per_second"`
}

// Top estimates the load of the latest minute, or of as many reports as the samples reach back.
func (s *Sampler) Top() Load {
	now := time.Now()
	users := make(map[string]int)
	buckets := make(map[history.Bucket]int)
	var all []time.Time
	for i := range s.ring {
		one := s.ring[i].Load()
		if one == nil || now.Sub(one.at) > window {
			continue
		}
		users[one.uid]++
		buckets[history.BucketOf(one.uid)]++
		all = append(all, one.at)
	}
	seconds := window.Seconds()
	if len(all) == room {
		seconds = max(now.Sub(slices.MinFunc(all, time.Time.Compare)).Seconds(), .001)
	}
	rate := func(n int) float64 { return float64(n*oneIn) / seconds }
	l := Load{Rate: rate(len(all)), Users: []User{}, Buckets: []Bucket{}}
	for uid, n := range users {
		l.Users = append(l.Users, User{uid, history.BucketOf(uid), rate(n)})
	}
	for b, n := range buckets {
		l.Buckets = append(l.Buckets, Bucket{b, rate(n)})
	}
	l.Trim()
	return l
}

// Add adds the load of another service. A user may be on several, after one has failed.
func (l *Load) Add(m Load) {
	l.Rate += m.Rate
	for _, u := range m.Users {
		if i := slices.IndexFunc(l.Users, func(v User) bool { return v.UID == u.UID }); i >= 0 {
			l.Users[i].Rate += u.Rate
			continue
		}
		l.Users = append(l.Users, u)
	}
	for _, b := range m.Buckets {
		if i := slices.IndexFunc(l.Buckets, func(c Bucket) bool { return c.Bucket == b.Bucket }); i >= 0 {
			l.Buckets[i].Rate += b.Rate
			continue
		}
		l.Buckets = append(l.Buckets, b)
	}
}

// Trim sorts the users and buckets, and drops all but the first ten.
func (l *Load) Trim() {
	slices.SortFunc(l.Users, func(a, b User) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), strings.Compare(a.UID, b.UID))
	})
	slices.SortFunc(l.Buckets, func(a, b Bucket) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Bucket, b.Bucket))
	})
	l.Users, l.Buckets = l.Users[:min(top, len(l.Users))], l.Buckets[:min(top, len(l.Buckets))]
}
