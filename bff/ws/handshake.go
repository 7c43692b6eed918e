package ws

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/token"
)

// bearer is how a browser, which cannot set a header, gives its token: as one more
// subprotocol, which is not the one that is agreed on.
const bearer = "bearer."

// Refusal is why there is no connection, and what HTTP calls that.
type Refusal struct {
	status int
	reason string
}

// Error returns the reason.
func (e *Refusal) Error() string { return e.reason }

// HTTPStatus returns the status to answer with.
func (e *Refusal) HTTPStatus() int { return e.status }

// Upgrade makes a WebSocket of a request, and returns; the connection lives on. It
// fails, with nothing answered yet, with a [Refusal], a [limit.Exceeded] or with
// [token.ErrInvalid].
func (h *Handler) Upgrade(w http.ResponseWriter, r *http.Request) error {
	s, err := h.admit(w, r)
	if err != nil {
		return err
	}
	if s.user, err = h.enter(s.uid); err != nil {
		return err
	}
	g := &hijacker{ResponseWriter: w}
	conn, err := websocket.Accept(g, r, &websocket.AcceptOptions{
		Subprotocols:       []string{s.format.name()},
		InsecureSkipVerify: true, // admit has looked at the origin
	})
	if err != nil { // and answered
		h.leave(s)
		return nil
	}
	conn.SetReadLimit(h.cfg.MaxMessage)
	s.start(conn, g.conn)
	return nil
}

// admit finds out who wants to connect from where, and how to talk to them.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (*session, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		return nil, &Refusal{http.StatusUpgradeRequired, "want a WebSocket"}
	}
	if !h.welcome(r) {
		return nil, &Refusal{http.StatusForbidden, fmt.Sprintf("origin %.100q may not connect", r.Header.Get("Origin"))}
	}
	offered := protocols(r)
	text, err := credentials(r, offered)
	if err != nil {
		return nil, err
	}
	s := &session{handler: h}
	if h.cfg.Changes != nil && r.URL.Query().Get("push") == "true" {
		s.id = identity()
	}
	uid, until, err := h.cfg.Tokens.Verify(text)
	if err != nil {
		return nil, err
	}
	s.uid, s.until = uid, time.Now().Add(time.Until(until))
	for _, f := range []format{protoFormat{}, jsonFormat{}} {
		if slices.Contains(offered, f.name()) {
			s.format = f
			return s, nil
		}
	}
	return nil, &Refusal{http.StatusBadRequest, "want the subprotocol playhead.v1.json or playhead.v1.proto"}
}

// welcome reports whether a page, if it is one, may connect: one of the edge's own
// host, or of a site on the list.
func (h *Handler) welcome(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.ContainsFunc(h.cfg.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func protocols(r *http.Request) (names []string) {
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func credentials(r *http.Request, offered []string) (string, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		return token.Bearer(header)
	}
	for _, name := range offered {
		if text, ok := strings.CutPrefix(name, bearer); ok {
			return text, nil
		}
	}
	return "", fmt.Errorf("%w: want Authorization: Bearer, or the subprotocol bearer.<token>", token.ErrInvalid)
}
