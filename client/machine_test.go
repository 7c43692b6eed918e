package client

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// Machine is an outbox whose steps are texts, as in testdata/outbox.json.
type Machine struct {
	o    *outbox
	made int64
}

// NewMachine returns an outbox of at most limit reports.
func NewMachine(limit int) *Machine {
	return &Machine{o: newOutbox(limit, 10*time.Second, true)}
}

// Step takes a step. It returns the outcomes, or the reports that are sent.
func (m *Machine) Step(verb string, words []string) (told []string) {
	var answers []Answer
	switch verb {
	case "report":
		answers = m.o.report(m.item(words[0]))
	case "send":
		beats, _ := m.o.next()
		for _, h := range beats {
			told = append(told, named(h)+guard(h))
		}
	case "answer":
		answers, _ = m.o.takeAnswer(m.response(words), 0)
	case "invalid", "too_large":
		answers = m.o.refuse("", "bad", verb == "too_large")
	case "lost":
		m.o.fail()
	case "wait":
		m.o.postpone()
	case "resync":
		m.o.resync()
	case "slept":
		m.o.loseSight()
	case "closed":
		m.o.fail()
		m.o.closed()
	case "seen":
		id, etag, _ := strings.Cut(words[0], ":")
		m.o.seen(m.record(id, etag))
	default:
		panic("unknown step " + verb)
	}
	for _, a := range answers {
		told = append(told, named(a.Heartbeat)+"="+status(a))
	}
	return told
}

// item parses a report such as o.1, the first second of o, or o.1/t in the session t.
func (m *Machine) item(word string) *item {
	place, session, other := strings.Cut(word, "/")
	if !other {
		session = "s"
	}
	id, n, _ := strings.Cut(place, ".")
	m.made++
	seconds, _ := strconv.ParseInt(n, 10, 64)
	h := &messagev1.Heartbeat{
		ObjectId: id, ObjectType: 1, Kind: messagev1.Kind_KIND_PROGRESS, PositionMs: seconds * 1000,
		Session: session, Device: "tv", EventTimeMs: m.made,
	}
	return &item{Heartbeat: h, size: 100}
}

func (m *Machine) record(id, etag string) *messagev1.Item {
	m.made++
	tag, _ := strconv.ParseUint(etag, 16, 64)
	return &messagev1.Item{Object: &messagev1.Object{Id: id, Type: 1}, Etag: tag, Session: "other", Device: "phone", PositionMs: 5, EventTimeMs: m.made}
}

// response parses results such as o.1=stored:a1, with the etag of the record; ! is another device's.
func (m *Machine) response(words []string) *messagev1.ApplyResponse {
	resp := &messagev1.ApplyResponse{}
	for _, word := range words {
		report, result, _ := strings.Cut(word, "=")
		text, etag, found := strings.Cut(result, ":")
		resp.Statuses = append(resp.Statuses, messagev1.Status(messagev1.Status_value["STATUS_"+strings.ToUpper(text)]))
		it := &messagev1.Item{}
		if found {
			h := m.item(report)
			it = m.record(h.ObjectId, strings.TrimSuffix(etag, "!"))
			if !strings.HasSuffix(etag, "!") {
				it.Session, it.Device, it.PositionMs = h.Session, h.Device, h.PositionMs
			}
		}
		resp.Records = append(resp.Records, it)
	}
	return resp
}

func named(h *messagev1.Heartbeat) string {
	name := fmt.Sprintf("%s.%d", h.ObjectId, h.PositionMs/1000)
	if h.Session != "s" {
		name += "/" + h.Session
	}
	return name
}

func guard(h *messagev1.Heartbeat) string {
	if h.IfMatch == 0 {
		return ""
	}
	return "@" + strconv.FormatUint(h.IfMatch, 16)
}

// status names an outcome as the JavaScript client does.
func status(a Answer) string {
	own := []messagev1.Status{messagev1.Status_STATUS_UNSPECIFIED, messagev1.Status_STATUS_STALE}
	if a.Record == nil && slices.Contains(own, a.Status) {
		return map[messagev1.Status]string{own[0]: "dropped", own[1]: "superseded"}[a.Status]
	}
	return strings.ToLower(strings.TrimPrefix(a.Status.String(), "STATUS_"))
}
