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

// seriesName tells series apart: a show and a podcast may have the same title.
type seriesName struct {
	typ  uint32
	name string
}

// series is what the read records say about one.
type series struct {
	played    int64 // when something of it last was, in Unix milliseconds
	dismissed int64 // when the user last dismissed a part of it
	listed    bool  // has a row
	parts     []part
}

// part is a record of a series.
type part struct {
	item       history.Item
	number     number
	class      class
	unfinished bool // in progress
	completed  bool
	at         int64 // when it was left or completed, in Unix milliseconds
}

// number is the place of a part in its series. A file of several episodes has a first and a last one.
type number struct {
	season      float64 // noSeason where the part has none; 0 are specials
	first, last float64
}

const noSeason = -1

// class says which parts a series goes by: specials where it has no others, and what has no number where all have none.
type class uint8

const (
	unnumbered class = iota
	special
	regular
)

// Texts such as "S02" and "Season 2", and such as "E05", "7.5", "1-2", "E01E02", "S01E05" and "1x05".
var (
	seasonForm  = regexp.MustCompile(`^(?:\pL+[ .#]*|#)?(\d+)$`)
	episodeForm = regexp.MustCompile(`^(?:(?:[sS]\pL*[ .#]*)?(\d+)[ .-]*[eEfFxX]\pL*[ .#]*|\pL+[ .#]*|#)?(\d+(?:\.\d+)?)(?: *(?:[-–+&] *(?:\pL+[ .#]*)?|[eE])(\d+))?$`)
)

// numberOf returns the place that the metadata says, and its class.
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
	case n.last < n.first || max(n.season, n.last) >= math.MaxInt32: // no range, or nothing that has a next one
		return number{}, unnumbered
	case n.season == 0:
		return n, special
	}
	return n, regular
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// valueOf returns the value of a number in digits, infinite where it is too large.
func valueOf(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// add adds a record, and reports whether it is in progress or completed.
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

// hidden reports whether the user has dismissed a part, and played nothing of the series since. Nobody knows which
// part stood for the series at the time, since earlier plays may have come late: so all parts count.
func (s *series) hidden() bool { return s.dismissed != 0 && s.dismissed >= s.played }

// latest returns the part that was in progress or completed last. Completed specials count only where all that is active are such, and
// completed parts without a number only where none has any. Of one moment, such as that of marks, what is in progress comes first, and then the furthest.
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

// goOn returns the part to go on with: what was in progress last, or else the part after what was completed last, also where that was
// completed before. Where there is no record of that one, it returns the completed part and the numbers of the next one.
// After a mark it goes on to the next part that is not completed: who marks does not watch again.
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

// after returns the part after a completed one, nil where there is no record of it.
func (s *series) after(p *part) *part {
	if p.class == unnumbered {
		return nil
	}
	var next *part
	over := true // nothing is known of the rest of the season
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

// opening returns the first part of a season, nil where there is no record of it. One that is completed says only of who watches again
// that the season before is over: others may have begun with a later season.
func (s *series) opening(season float64, again bool) (first *part) {
	for i := range s.parts {
		o := &s.parts[i]
		if o.class == regular && o.number.season == season && o.number.first <= 1 && (again || !o.completed) && (first == nil || compareNext(o, first) < 0) {
			first = o
		}
	}
	return first
}

// compareNext orders parts of a season by episode. Of two with the same one, that which is not completed comes first, then the newest.
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

// next returns the numbers of the part after p, none where p has none.
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
