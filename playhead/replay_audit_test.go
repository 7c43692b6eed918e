package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// audited runs a short audit.
func audited(t *testing.T, args ...string) error {
	t.Helper()
	_, err := replayed(t, append([]string{"audit", "--admin=127.0.0.1:0", "--every=1ms", "--for=1s", "--again=1ms", "--log-level=error"}, args...)...)
	return err
}

// TestAudit audits an all-in-one through its edge and its gRPC server, twice with the same users, and finds nothing.
func TestAudit(t *testing.T) {
	front, secret := edge(t)
	for _, args := range [][]string{
		{"--to=edge:" + front, "--token-secret-file=" + secret},
		{"--to=edge:" + front, "--token-secret-file=" + secret, "--users=2"},
		{"--to=service", "--service=" + started(t, t.TempDir()).RPC()},
	} {
		if err := audited(t, args...); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestAuditFails(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"no such door", "--to=window", "--to: want edge:URL or service"},
		{"no secret", "--to=edge:http://127.0.0.1:1", "needs --token-secret-file"},
		{"no such store", "--read=disk:", "--read: want cache: or archive:TABLE@ZOOKEEPER"},
		{"no table", "--read=archive:data", "--read: want TABLE@ZOOKEEPER"},
		{"no such name", "--name=a\x00", "--name: "},
		{"nobody answers", "--service=127.0.0.1:1 --patience=10ms", "nothing was stored, so nothing is proved: "},
	} {
		if err := audited(t, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// liar is an edge that changes the records that it answers.
type liar struct {
	mu  sync.Mutex
	lie func(items []any) []any
}

func (l *liar) answer(r *http.Response) error {
	if r.Request.Method != http.MethodGet || r.Request.URL.Path != "/v1/history" || r.StatusCode != http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var page map[string]any
	if err := json.Unmarshal(text, &page); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	items, _ := page["items"].([]any)
	page["items"] = l.lie(items)
	text, err = json.Marshal(page)
	r.Body = io.NopCloser(bytes.NewReader(text))
	r.ContentLength = int64(len(text))
	r.Header.Del("Content-Length")
	return err
}

// TestAuditFinds puts an edge in between that loses records, and one that keeps those that were removed.
func TestAuditFinds(t *testing.T) {
	behind, secret := edge(t)
	to, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	kept := make(map[string]any)
	for name, lie := range map[string]func(items []any) []any{
		"lost": func(items []any) []any { return items[:max(len(items)-1, 0)] },
		"resurrected": func(items []any) []any {
			there := make(map[string]bool)
			for _, it := range items {
				id := it.(map[string]any)["object"].(map[string]any)["id"].(string)
				there[id], kept[id] = true, it
			}
			for id, it := range kept {
				if !there[id] {
					items = append(items, it)
				}
			}
			return items
		},
	} {
		l := &liar{lie: lie}
		proxy := &httputil.ReverseProxy{ModifyResponse: l.answer, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Accept-Encoding", "identity")
		}}
		front := httptest.NewServer(proxy)
		t.Cleanup(front.Close)
		found := func(err error) bool {
			return err != nil && strings.Contains(err.Error(), " "+name) && !strings.Contains(err.Error(), " 0 "+name)
		}
		// In a second a user's rate allows few deletes and reads.
		for n := 1; ; n++ {
			err := audited(t, "--to=edge:"+front.URL, "--token-secret-file="+secret, "--users=1", "--name="+name)
			if found(err) {
				break
			}
			if n == 20 {
				t.Fatalf("%s: got %v", name, err)
			}
		}
	}
}
