package main

import (
	"context"
	"slices"
	"testing"

	"github.com/playhead/playhead/all-in-one/allinone"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestViewer: the viewer's half-watched items are offered to continue; the rest is completed.
func TestViewer(t *testing.T) {
	p, err := allinone.Open(t.Context(), allinone.Config{Dir: t.TempDir(), HTTP: "127.0.0.1:0", RPC: "127.0.0.1:0", Admin: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
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
