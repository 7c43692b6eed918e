package imports

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
)

// DateOrder is the order of day, month and year in dates of digits.
type DateOrder string

// Orders of dates.
const (
	DayFirst   DateOrder = "dmy"
	MonthFirst DateOrder = "mdy"
	YearFirst  DateOrder = "ymd"
)

// ParseDateOrder parses "dmy", "mdy", "ymd", or "" for unknown.
func ParseDateOrder(text string) (DateOrder, error) {
	if o := DateOrder(text); o == "" || slices.Contains(dateOrders, o) {
		return o, nil
	}
	return "", fmt.Errorf("dates: want dmy, mdy or ymd, got %q", text)
}

var dateOrders = []DateOrder{DayFirst, MonthFirst, YearFirst}

// units are the units of times and lengths, in parts of a millisecond.
var units = map[string]struct{ times, per int64 }{
	"s": {1000, 1}, "ms": {1, 1}, "us": {1, 1000}, "ns": {1, 1_000_000}, "min": {60_000, 1}, "h": {3_600_000, 1},
	"ticks": {1, 10_000},
}

// number parses a number of a unit as milliseconds. Fractions are cut.
func number(text, unit string) (int64, error) {
	u := units[unit]
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > 1<<62/u.times || n < -1<<62/u.times {
		return 0, bad("", "%s is not a number of %s", shown(text), unit)
	}
	ms := n * u.times / u.per
	if fraction == "" || u.times == 1 {
		return ms, allDigits(text, fraction)
	}
	f, err := strconv.ParseFloat("0."+fraction, 64)
	if err != nil {
		return 0, bad("", "%s is not a number of %s", shown(text), unit)
	}
	return ms + int64(f*float64(u.times)), nil
}

func allDigits(text, fraction string) error {
	if strings.Trim(fraction, "0123456789") != "" || strings.HasSuffix(text, ".") {
		return bad("", "%s is not a number", shown(text))
	}
	return nil
}

// hms parses a length such as 1:02:03 or 02:03.
func hms(text string) (ms int64, err error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, bad("", "%s is not a length such as 1:02:03", shown(text))
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || i > 0 && n > 59 {
			return 0, bad("", "%s is not a length such as 1:02:03", shown(text))
		}
		ms = ms*60 + int64(n)*1000 //nolint:gosec // of 16 bits
	}
	return ms, nil
}

// wall returns the instant of a wall clock in a zone. It refuses times that a change of daylight saving leaves out,
// or has twice.
func wall(t time.Time, zone *time.Location) (int64, error) {
	if zone == nil {
		return t.UnixMilli(), nil
	}
	local := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), zone)
	if local.Hour() != t.Hour() || local.Minute() != t.Minute() {
		return 0, bad("", "%s does not exist in %s: clocks went forward; give an offset", t.Format("2006-01-02 15:04:05"), zone)
	}
	for _, before := range []bool{true, false} {
		begin, end := local.ZoneBounds()
		edge := begin
		if !before {
			edge = end
		}
		if edge.IsZero() {
			continue
		}
		_, one := edge.Add(-time.Second).Zone()
		_, other := edge.Zone()
		back := time.Duration(one-other) * time.Second
		if back > 0 && (before && local.Before(edge.Add(back)) || !before && !local.Before(edge.Add(-back))) {
			return 0, bad("", "%s is there twice in %s: clocks went back; give an offset", t.Format("2006-01-02 15:04:05"), zone)
		}
	}
	return local.UnixMilli(), nil
}

// midnight returns the first instant of a day in a zone.
func midnight(t time.Time, zone *time.Location) int64 {
	if zone == nil {
		zone = time.UTC
	}
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, zone).UnixMilli()
}

// rfc3339 parses a time with an offset.
func rfc3339(text string) (int64, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, bad("", "%s is not a time such as 2026-01-02T15:04:05Z", shown(text))
	}
	return t.UnixMilli(), nil
}

// layouts of ISO 8601 that files have, with a zone and without.
var isoLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02 15:04:05 -0700",
	"2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05 MST",
}

// iso parses a time as ISO 8601 has it, or a day. A wall clock is in the zone.
func iso(text string, zone *time.Location) (int64, error) {
	for _, layout := range isoLayouts {
		if len(text) > 10 && text[10] != layout[10] { // T or a space
			continue
		}
		if t, err := time.Parse(layout, text); err == nil {
			return inZone(t, layout, zone)
		}
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return midnight(t, zone), nil
	}
	return 0, bad("", "%s is not a time such as 2026-01-02T15:04:05Z", shown(text))
}

func inZone(t time.Time, layout string, zone *time.Location) (int64, error) {
	switch {
	case strings.Contains(layout, "MST"):
		return named(t, zone)
	case strings.Contains(layout, "Z07") || strings.Contains(layout, "-07"):
		return t.UnixMilli(), nil
	case !strings.Contains(layout, "15") && !strings.Contains(layout, "3"):
		return midnight(t, zone), nil
	}
	return wall(t, zone)
}

// zones are abbreviations with one meaning in exported files, in hours.
var zones = map[string]float64{
	"UTC": 0, "GMT": 0, "Z": 0, "WET": 0, "WEST": 1, "CET": 1, "MEZ": 1, "BST": 1, "CEST": 2, "MESZ": 2, "EET": 2, "EEST": 3, "MSK": 3,
	"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10,
	"JST": 9, "KST": 9, "AEST": 10, "AEDT": 11, "ACST": 9.5, "ACDT": 10.5, "AWST": 8, "NZST": 12, "NZDT": 13,
}

// named returns the instant of a wall clock with the abbreviation of a zone. The zone is for unknown abbreviations.
func named(t time.Time, zone *time.Location) (int64, error) {
	name, _ := t.Zone()
	return abbreviated(t, name, zone)
}

func abbreviated(t time.Time, name string, zone *time.Location) (int64, error) {
	clock := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	if hours, ok := zones[name]; ok {
		return clock.UnixMilli() - int64(hours*3_600_000), nil
	}
	if offset, ok := strings.CutPrefix(name, "GMT"); ok {
		if z, err := history.ParseZone(padded(offset)); err == nil {
			return wall(clock, z)
		}
	}
	if name == "" || zone != nil {
		return wall(clock, zone)
	}
	return 0, bad("", "the time zone %s is not known; set the zone", shown(name))
}

// padded makes +02:00 of +2.
func padded(offset string) string {
	if m := shortOffset.FindStringSubmatch(offset); m != nil {
		return fmt.Sprintf("%s%02s:%02s", m[1], m[2], m[3])
	}
	return offset
}

var shortOffset = regexp.MustCompile(`^([+-])(\d{1,2}):?(\d\d)?$`)

// digits matches a date of digits, such as 31.12.2023 or 1/2/23.
var digits = regexp.MustCompile(`^(\d{1,4})([./-]) ?(\d{1,2})[./-] ?(\d{1,4})\.?$`)

// firstYear is the year before which no film was streamed: it tells years of two digits from days.
const firstYear = 2007

// date parses a date of digits in an order.
func date(text string, order DateOrder, latest int) (time.Time, bool) {
	m := digits.FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, false
	}
	var y, mo, d string
	switch order {
	case DayFirst:
		d, mo, y = m[1], m[3], m[4]
	case MonthFirst:
		mo, d, y = m[1], m[3], m[4]
	default:
		y, mo, d = m[1], m[3], m[4]
	}
	if len(y) != 2 && len(y) != 4 || len(d) > 2 || len(mo) > 2 {
		return time.Time{}, false
	}
	year, _ := strconv.Atoi(y)
	month, _ := strconv.Atoi(mo)
	day, _ := strconv.Atoi(d)
	if len(y) == 2 {
		year += 2000
	}
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	return t, year >= firstYear && year <= latest && int(t.Month()) == month && t.Day() == day
}

// dateOrder finds the one order that reads all dates. Of dotted dates the day is first, unless the year is. Dates
// that no order reads are rejected later, one by one.
func dateOrder(dates []string, latest int) (DateOrder, error) {
	count, readable, dotted := map[DateOrder]int{}, 0, 0
	for _, text := range dates {
		valid := false
		for _, o := range dateOrders {
			if _, ok := date(text, o, latest); ok && (o != YearFirst || yearFirst(text)) {
				count[o]++
				valid = true
			}
		}
		if valid {
			readable++
		}
		if strings.Contains(text, ".") {
			dotted++
		}
	}
	if readable == 0 {
		return "", errors.New("no dates of digits, such as 31/12/2023")
	}
	all := slices.DeleteFunc(slices.Clone(dateOrders), func(o DateOrder) bool { return count[o] < readable })
	switch {
	case len(all) == 1:
		return all[0], nil
	case dotted > len(dates)/2 && slices.Equal(all, []DateOrder{DayFirst, MonthFirst}):
		return DayFirst, nil
	}
	return "", ErrDateOrder
}

// yearFirst reports whether a date may begin with its year: of two digits only in the style of "23. 1. 2.".
func yearFirst(text string) bool {
	return strings.Contains(text, ". ") || strings.IndexAny(text, "./-") == 4
}
