package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// forOthers are the scopes, besides admin, that allow an operation for another user.
var forOthers = map[string]string{
	"listHistory": "history:read", "searchHistory": "history:read", "listChanges": "history:read", "listContinueWatching": "history:read",
	"getResumePoint": "history:read", "getResumePoints": "history:read", "listViewings": "history:read", "exportHistory": "history:read",
	"getSettings": "history:read", "listPlays": "plays:read", "getCounts": "counts:read", "getStats": "history:read", "importHistory": "history:import",
	"reportHeartbeats": "", "dismissObjects": "", "markObjects": "", "deleteObject": "", "deleteObjects": "", "clearHistory": "", "updateSettings": "",
}

func scoped(t *testing.T, scope, target, user string) *http.Request {
	t.Helper()
	text, err := token.Claims{UID: "support", Scope: scope, TTL: time.Hour}.Sign([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, "support", target, strings.NewReader(bodies[target]))
	r.Header.Set("Authorization", "Bearer "+text)
	if user != "" {
		r.Header.Set("Playhead-User", user)
	}
	return r
}

// bodies are those of operations that ask the service only with a valid body.
var bodies = map[string]string{
	"POST /v1/heartbeats":       `{"heartbeats":[{"object":{"id":"100","type":1},"kind":"stop","position_ms":9,"event_time":"2026-11-20T10:00:00Z"}]}`,
	"POST /v1/continue/dismiss": `{"objects":[{"id":"100","type":1}]}`,
	"POST /v1/history/lookup":   `{"objects":[{"id":"100","type":1}]}`,
	"POST /v1/history/delete":   `{"objects":[{"id":"100","type":1}]}`,
	"POST /v1/history/mark":     `{"objects":[{"id":"100","type":1}],"mark":"watched"}`,
	"POST /v1/counts":           `{"objects":[{"id":"100","type":1}]}`,
	"PUT /v1/settings":          `{"recording":false}`,
	"POST /v1/import":           `{"object":{"id":"100","type":1},"event_time":"2026-11-20T10:00:00Z"}`,
}

// TestScopes tries each operation of the document with each scope, for another user and for the token's own.
func TestScopes(t *testing.T) {
	for path, operations := range fetchDocument(t).Paths {
		for method, op := range operations {
			target := strings.ToUpper(method) + " " + strings.NewReplacer("{type}", "1", "{id}", "100", "search", "search?q=low").Replace(path)
			if op.OperationID == "openStream" {
				target += "?push=true"
			} else if _, listed := forOthers[op.OperationID]; !listed {
				t.Errorf("%s (%q) has no entry in the test", target, op.OperationID)
			}
			for _, scope := range []string{"", "openid", "history", "history:read", "openid history:import", "plays:read", "counts:read", "admin"} {
				wantScope(t, op.OperationID, scope, target)
			}
		}
	}
}

func wantScope(t *testing.T, id, scope, target string) {
	t.Helper()
	for _, user := range []string{"", "support", "ann"} {
		s := &service{}
		w := newEdge(t, s).send(scoped(t, scope, target, user))
		if id == "openStream" {
			if refused := w.Code == http.StatusUnprocessableEntity; refused != (user != "") {
				t.Errorf("%s for %q: %d", target, user, w.Code)
			}
			continue
		}
		special := forOthers[id]
		if want := map[string]int{"listPlays": http.StatusNotFound, "getCounts": http.StatusInternalServerError}[id]; want != 0 {
			// About all users. This edge has no stream of plays, and its service no totals.
			if scope != special && scope != "admin" {
				want = http.StatusForbidden
			}
			wantProblem(t, w, want)
			continue
		}
		may := user != "ann" || scope == "admin" || special != "" && strings.Contains(" "+scope+" ", " "+special+" ")
		if refused := w.Code == http.StatusForbidden; refused == may || !may && len(s.asked) > 0 {
			t.Errorf("%s with scope %q for %q: %d, asked %v, want it allowed: %v", target, scope, user, w.Code, s.asked, may)
			continue
		}
		if !may {
			wantProblem(t, w, http.StatusForbidden)
			continue
		}
		if user == "" {
			user = "support"
		}
		for _, asked := range s.asked {
			if got := uidIn(asked); got != user {
				t.Errorf("%s with scope %q: asked for %q, want %q", target, scope, got, user)
			}
		}
		if len(s.asked) == 0 {
			t.Errorf("%s: the service was not asked: %d %s", target, w.Code, w.Body)
		}
	}
}

func uidIn(req any) string {
	if one, ok := req.(interface{ GetUid() string }); ok {
		return one.GetUid()
	}
	return req.(*historyv1.ApplyRequest).GetHeartbeats()[0].GetUid()
}

// TestActingSparesTheUser: requests of support do not use up the budget of the user's players.
func TestActingSparesTheUser(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}, Limit: limit.New(0.001, 1)})
	for _, want := range []int{200, 429} {
		if w := e.send(scoped(t, "history:read", "GET /v1/history", "u1")); w.Code != want {
			t.Errorf("support: %d, want %d", w.Code, want)
		}
	}
	if w := e.do(t, "GET /v1/history", ""); w.Code != 200 {
		t.Errorf("the user: %d %s", w.Code, w.Body)
	}
	if w := e.send(scoped(t, "history:read", "GET /v1/history", "a\x01b")); w.Code != 422 {
		t.Errorf("a user who cannot be: %d", w.Code)
	}
}

// TestAudit has a line for each removal, export and import, and for each call for another user. It says who, whose, how
// many and with which outcome, without the user's name.
func TestAudit(t *testing.T) {
	user := history.Pseudonym("u1")
	for _, tt := range []struct{ scope, call, body, want string }{
		{"", "DELETE /v1/history/1/a", "", "action=deleteObject audit.by=" + user + " audit.user=" + user},
		{"", "DELETE /v1/history", "", "action=clearHistory audit.by=" + user + " audit.user=" + user},
		{"", "GET /v1/export", "", "action=exportHistory audit.by=" + user + " audit.user=" + user},
		{"", "POST /v1/history/delete", "{", `audit.outcome="bad request"`},
		{"", "GET /v1/history", "", ""},
		{"history:read", "GET /v1/history", "", "action=listHistory audit.by=support audit.scopes=history:read audit.user=" + user},
		{"admin", "DELETE /v1/history/1/a", "", "action=deleteObject audit.by=support audit.scopes=admin audit.user=" + user},
	} {
		e := configured(t, api.Config{Service: &service{}})
		if tt.scope == "" {
			e.do(t, tt.call, tt.body)
		} else {
			e.send(scoped(t, tt.scope, tt.call, "u1"))
		}
		log := e.log.String()
		if n := strings.Count(log, "msg=audit"); n > 1 || (n == 1) != (tt.want != "") || !strings.Contains(log, tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.scope, tt.call, log, tt.want)
		}
		if strings.Contains(log, "u1") && !strings.Contains(user, "u1") || tt.want != "" && !strings.Contains(log, "audit.request_id=") {
			t.Errorf("%s %s: %q", tt.scope, tt.call, log)
		}
	}
}
