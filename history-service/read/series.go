package read

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// seriesName identifies a series. The type is included because a show and a podcast may share a title.
type seriesName struct {
	typ  uint32
	name string
}

// series collects the records of one series.
type series struct {
	played    int64 // last activity, Unix ms
	dismissed int64 // last dismissal, Unix ms
	listed    bool  // already has a row
	parts     []part
}

// part is a record of a series.
type part struct {
	item       history.Item
	number     number
	class      class
	unfinished bool // in progress
	completed  bool
	at         int64 // time of leaving or completion, Unix ms
}

// number is the position of a part in its series. A file with several episodes has a first and a last one.
type number struct {
	season      float64 // noSeason if unknown; 0 for specials
	first, last float64
}

const noSeason = -1

// class ranks the parts of a series. A lower class counts only if no higher class is active.
type class uint8

const (
	unnumbered class = iota
	special
	regular
)

// Accepted season texts: "S02", "Season 2". Accepted episode texts: "E05", "7.5", "1-2", "E01E02", "S01E05",
// "1x05".
var (
	seasonForm  = regexp.MustCompile(`^(?:\pL+[ .#]*|#)?(\d+)$`)
	episodeForm = regexp.MustCompile(`^(?:(?:[sS]\pL*[ .#]*)?(\d+)[ .-]*[eEfFxX]\pL*[ .#]*|\pL+[ .#]*|#)?(\d+(?:\.\d+)?)(?: *(?:[-–+&] *(?:\pL+[ .#]*)?|[eE])(\d+))?$`)
)

// numberOf parses the position from the metadata and returns its class.
func numberOf(meta history.Meta) (number, class) {
	season, episode := strings.TrimSpace(meta.Get("season")), strings.TrimSpace(meta.Get("episode"))
	inSeason, first, last := "", episode, ""
	if !digits(episode) {
		found := episodeForm.FindStringSubmatch(episode)
		if found == nil {
			return number{}, unnumbered
		}
		inSeason, first, last = found[1], found[2], found[3]
	}
	n := number{season: noSeason, first: valueOf(first), last: valueOf(cmp.Or(last, first))}
	switch {
	case digits(season):
		n.season = valueOf(season)
	case season != "":
		found := seasonForm.FindStringSubmatch(season)
		if found == nil {
			return number{}, unnumbered
		}
		n.season = valueOf(found[1])
	case inSeason != "":
		n.season = valueOf(inSeason)
	}
	switch {
	case n.last < n.first || max(n.season, n.last) >= math.MaxInt32: // no range, or too large for a next number
		return number{}, unnumbered
	case n.season == 0:
		return n, special
	}
	return n, regular
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// valueOf parses digits; the result is infinite on overflow.
func valueOf(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// add adds a record and reports whether it is in progress or completed.
func (s *series) add(it history.Item, rules history.Rules) bool {
	r := it.Record
	p := part{item: it, unfinished: rules.Unfinished(r), completed: rules.Completed(r), at: r.LeftOff().Version.Time()}
	if p.completed {
		p.at = cmp.Or(r.CompletedAt(), p.at)
	}
	p.number, p.class = numberOf(r.Meta)
	s.played, s.dismissed = max(s.played, r.ViewedAt()), max(s.dismissed, r.DismissedAt())
	s.parts = append(s.parts, p)
	return p.active()
}

func (p *part) active() bool { return p.unfinished || p.completed }

// hidden reports whether the user dismissed any part and has played no part since. Every part counts, because late
// reports may change which part represented the series at the time.
func (s *series) hidden() bool { return s.dismissed != 0 && s.dismissed >= s.played }

// latest returns the part last in progress or completed. Completed parts count only in the highest active class. At
// equal times, as after marks, a part in progress wins, then the highest number.
func (s *series) latest() *part {
	class := unnumbered
	for i := range s.parts {
		if s.parts[i].active() {
			class = max(class, s.parts[i].class)
		}
	}
	var latest *part
	for i := range s.parts {
		p := &s.parts[i]
		if (p.unfinished || p.completed && p.class == class) && (latest == nil || compareLatest(p, latest) > 0) {
			latest = p
		}
	}
	return latest
}

func compareLatest(a, b *part) int {
	if c := cmp.Compare(a.at, b.at); c != 0 {
		return c
	}
	if a.unfinished != b.unfinished {
		if a.unfinished {
			return 1
		}
		return -1
	}
	return cmp.Or(compareNumbers(a, b), cmp.Compare(a.item.Record.Version, b.item.Record.Version), strings.Compare(a.item.Object.ID, b.item.Object.ID))
}

func compareNumbers(a, b *part) int {
	return cmp.Or(cmp.Compare(a.number.season, b.number.season), cmp.Compare(a.number.last, b.number.last), cmp.Compare(b.number.first, a.number.first))
}

// goOn returns the part to continue with: the part last in progress, or the one after the part last completed. If
// the next part has no record, it returns the completed part and the next numbers. After a "watched" mark it skips
// completed parts.
func (s *series) goOn() (history.Item, *historyv1.NextPart) {
	p := s.latest()
	if p.unfinished {
		return p.item, nil
	}
	for marked := p.item.Record.Marked(history.KindWatched); ; {
		switch next := s.after(p); {
		case next == nil:
			return p.item, p.next()
		case !marked || !next.completed:
			return next.item, nil
		default:
			p = next
		}
	}
}

// after returns the part after a completed one; nil if it has no record.
func (s *series) after(p *part) *part {
	if p.class == unnumbered {
		return nil
	}
	var next *part
	over := true // no later episode of the season is known
	for i := range s.parts {
		o := &s.parts[i]
		if o.class == unnumbered || o.number.season != p.number.season || o.number.first <= p.number.last {
			continue
		}
		if over = false; o.number.first <= math.Floor(p.number.last)+1 && (next == nil || compareNext(o, next) < 0) {
			next = o
		}
	}
	if over && p.number.season > 0 {
		return s.opening(p.number.season+1, p.item.Record.Plays() > 1)
	}
	return next
}

// opening returns the first part of a season; nil if it has no record. A completed opening counts only on a
// rewatch: other users may have started with the later season.
func (s *series) opening(season float64, again bool) (first *part) {
	for i := range s.parts {
		o := &s.parts[i]
		if o.class == regular && o.number.season == season && o.number.first <= 1 && (again || !o.completed) && (first == nil || compareNext(o, first) < 0) {
			first = o
		}
	}
	return first
}

// compareNext orders parts of a season by episode. At equal numbers, unfinished parts come first, then the newest.
func compareNext(a, b *part) int {
	c := cmp.Or(cmp.Compare(a.number.first, b.number.first), cmp.Compare(a.number.last, b.number.last))
	if c == 0 && a.completed != b.completed {
		if a.completed {
			return 1
		}
		return -1
	}
	return cmp.Or(c, history.NewestFirst(a.item, b.item))
}

// next returns the numbers of the part after p, empty if p is unnumbered.
func (p *part) next() *historyv1.NextPart {
	next := &historyv1.NextPart{}
	if p.class == unnumbered {
		return next
	}
	next.Episode = new(uint32(math.Floor(p.number.last)) + 1)
	if p.number.season != noSeason {
		next.Season = new(uint32(p.number.season))
	}
	return next
}
