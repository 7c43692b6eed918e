package main

import (
	"slices"
	"testing"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestViewer: the viewer's half-watched items are offered to continue; the rest is completed.
func TestViewer(t *testing.T) {
	p, ctx := allinonetest.Start(t, allinone.Config{}), t.Context()
	if err := invent(ctx, p.RPC()); err != nil {
		t.Fatal(err)
	}
	conn, err := connect(p.RPC())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	page, err := historyv1.NewHistoryServiceClient(conn).List(ctx, &historyv1.ListRequest{Uid: viewer, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, it := range page.GetItems() {
		if !it.GetCompleted() {
			open = append(open, it.GetObject().GetId())
		}
		if it.GetMeta()["title"] == "" || it.GetIncomplete() {
			t.Errorf("%v has no title, or is incomplete", it)
		}
	}
	want := []string{"nocturnes", "low-water", "orchard-1-3", "harbour-1-3", "keepers-book", "maps"}
	if !slices.Equal(open, want) || len(page.GetItems()) != 13 {
		t.Errorf("open %v of %d, want %v of 13", open, len(page.GetItems()), want)
	}
}
