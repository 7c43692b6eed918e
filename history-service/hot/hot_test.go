package hot_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/hot"
)

// TestTop finds the user with a third of all reports, and its bucket. A minute later it is forgotten.
func TestTop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s hot.Sampler
		for i := range 60_000 {
			s.Add(fmt.Sprint("user", i%2000))
			s.Add(fmt.Sprint("user", i%1999))
			s.Add("loud")
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		l := s.Top() // 6 s, 180,000 reports
		if l.Rate < 25_000 || l.Rate > 36_000 {
			t.Errorf("%v reports a second, want about 30,000", l.Rate)
		}
		if u := l.Users[0]; len(l.Users) != 10 || u.UID != "loud" || u.Rate < 8_000 || u.Rate > 12_000 {
			t.Errorf("%d users, first %+v, want loud with about 10,000 reports a second", len(l.Users), u)
		}
		if b := l.Buckets[0]; len(l.Buckets) != 10 || b.Bucket != history.BucketOf("loud") {
			t.Errorf("%d buckets, first %+v, want that of loud", len(l.Buckets), b)
		}
		time.Sleep(2 * time.Minute)
		if l := s.Top(); l.Rate != 0 || len(l.Users) != 0 {
			t.Errorf("later %+v, want none", l)
		}
	})
}
