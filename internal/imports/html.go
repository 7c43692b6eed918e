package imports

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/html"
)

// html reads the page of YouTube Takeout: one cell per video, with its link, its channel's, and a time in words.
func (s *Source) html(in *text, head []byte) error {
	if !bytes.Contains(head, []byte("content-cell")) {
		s.problem = errors.New("a web page, and not one of YouTube Takeout. " + wantForms())
		return nil
	}
	s.recognised(youTubeHTML)
	z := html.NewTokenizer(in)
	z.SetMaxBuf(maxRow)
	p := &page{s: s, in: in, line: 1}
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		raw := z.Raw()
		before := p.line
		p.line += int64(bytes.Count(raw, []byte("\n")))
		if err := p.token(kind, z, before); err != nil {
			return err
		}
	}
	if err := p.done(); err != nil {
		return err
	}
	if err := z.Err(); !errors.Is(err, io.EOF) {
		return s.broken(in.name, p.line, "the rest of the file was not read: "+cause(err))
	}
	return nil
}

// page is the state of reading: the entry so far.
type page struct {
	s     *Source
	in    *text
	line  int64
	open  bool
	entry entry
	cell  string // class of the cell
	link  bool   // inside of a link
}

type entry struct {
	line    int64
	header  string
	address string
	title   string
	channel string
	links   int
	at      string
	bad     string
	ad      bool
}

func (p *page) token(kind html.TokenType, z *html.Tokenizer, line int64) error {
	switch kind {
	case html.StartTagToken:
		name, more := z.TagName()
		tag := string(name)
		if tag != "div" && tag != "a" {
			return nil
		}
		var class, href string
		for more {
			var k, v []byte
			k, v, more = z.TagAttr()
			switch string(k) {
			case "class":
				class = string(v)
			case "href":
				href = string(v)
			}
		}
		return p.start(tag, class, href, line)
	case html.EndTagToken:
		if name, _ := z.TagName(); string(name) == "a" {
			p.link = false
		}
	case html.TextToken:
		if p.open {
			p.text(z.Text())
		}
	}
	return nil
}

func (p *page) start(tag, class, href string, line int64) error {
	switch {
	case tag == "div" && strings.HasPrefix(class, "outer-cell"):
		if err := p.done(); err != nil {
			return err
		}
		p.open, p.entry, p.cell = true, entry{line: line}, ""
	case tag == "div" && strings.HasPrefix(class, "header-cell"):
		p.cell = "header"
	case tag == "div" && strings.HasPrefix(class, "content-cell"):
		switch {
		case strings.Contains(class, "caption"):
			p.cell = "caption"
		case strings.Contains(class, "text-right"):
			p.cell = ""
		default:
			p.cell = "body"
		}
	case tag == "a" && p.cell == "body":
		p.link = true
		if p.entry.links++; p.entry.links == 1 {
			p.entry.address = href
		}
	}
	return nil
}

func (p *page) text(b []byte) {
	if reason := p.in.fault(b); reason != "" && p.entry.bad == "" {
		p.entry.bad = reason
	}
	text := strings.TrimSpace(spaces.Replace(string(b)))
	switch e := &p.entry; {
	case text == "":
	case p.cell == "header":
		e.header += text
	case p.cell == "caption":
		e.ad = e.ad || strings.Contains(text, "Google Ads")
	case p.cell == "body" && p.link && e.links == 1:
		e.title += text
	case p.cell == "body" && p.link && e.links == 2:
		e.channel += text
	case p.cell == "body" && !p.link:
		e.at = text
	}
}

// spaces are written as plain ones.
var spaces = strings.NewReplacer("\u00a0", " ", "\u202f", " ", "\u2009", " ", "\u200e", "", "\u200f", "")

// done yields the entry.
func (p *page) done() error {
	if !p.open {
		return nil
	}
	p.open, p.link = false, false
	r, err := p.row()
	return p.s.took(Item{Place: Place{File: p.in.name, Line: p.entry.line}}, youTubeHTML, r, err)
}

func (p *page) row() (*row, error) {
	e := &p.entry
	switch {
	case e.bad != "":
		return nil, bad("", "%s", e.bad)
	case e.ad:
		return nil, notViewing("an advertisement")
	}
	r, err := youTubeRow(e.address, e.header)
	if err != nil {
		return nil, err
	}
	r.put("title", e.title)
	r.put("channel", e.channel)
	r.end, err = p.s.words(e.at)
	return r, err
}

// clock is a time of day in words, with the zone after it.
var clock = regexp.MustCompile(`(\d{1,2}):(\d\d):(\d\d)(?: ?([AaPp])\.? ?[Mm]\.?)?,? ?(\S*)$`)

// months by the first three letters of their English and German names.
var months = map[string]time.Month{
	"jan": 1, "feb": 2, "mar": 3, "mär": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "okt": 10, "nov": 11,
	"dec": 12, "dez": 12,
}

// words parses times such as "Nov 28, 2026, 6:23:51 PM UTC" and "28.11.2026, 18:23:51 MEZ".
func (s *Source) words(text string) (int64, error) {
	wrong := func() error {
		return bad("time", "%s is in a language that is not read; export the history as JSON", shown(text))
	}
	part := clock.FindStringSubmatch(text)
	if part == nil {
		return 0, wrong()
	}
	day, ok := s.day(strings.TrimRight(strings.TrimSuffix(text, part[0]), ", "))
	hour, _ := strconv.Atoi(part[1])
	minute, _ := strconv.Atoi(part[2])
	second, _ := strconv.Atoi(part[3])
	if part[4] != "" {
		if hour < 1 || hour > 12 {
			return 0, wrong()
		}
		hour %= 12
		if strings.EqualFold(part[4], "p") {
			hour += 12
		}
	}
	if !ok || hour > 23 || minute > 59 || second > 59 {
		return 0, wrong()
	}
	t := time.Date(day.Year(), day.Month(), day.Day(), hour, minute, second, 0, time.UTC)
	ms, err := abbreviated(t, part[5], s.options.Zone)
	if err != nil {
		return 0, bad("time", "%s", err)
	}
	return ms, nil
}

// day parses a date with the name of its month, or of digits: dotted, year first, or in the order of the options.
func (s *Source) day(text string) (time.Time, bool) {
	for _, o := range dateOrders {
		known := s.options.Dates == o || o == DayFirst && strings.Contains(text, ".") || o == YearFirst && strings.IndexAny(text, "./-") == 4
		if !known {
			continue
		}
		if t, ok := date(text, o, s.started.Year()+1); ok {
			return t, true
		}
	}
	var numbers []int
	var month time.Month
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" ,./-", r) }) {
		n, err := strconv.Atoi(word)
		letters := []rune(strings.ToLower(word))
		switch {
		case err == nil:
			numbers = append(numbers, n)
		case len(letters) >= 3 && month == 0:
			month = months[string(letters[:3])]
		}
	}
	if month == 0 || len(numbers) != 2 || numbers[1] < firstYear-2 {
		return time.Time{}, false
	}
	t := time.Date(numbers[1], month, numbers[0], 0, 0, 0, 0, time.UTC)
	return t, t.Day() == numbers[0]
}
