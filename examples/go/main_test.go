package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/embedded"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// TestPlay: the second viewing goes on where the first one stopped.
func TestPlay(t *testing.T) {
	secret := bytes.Repeat([]byte("s"), token.MinSecret)
	p, err := embedded.Open(t.TempDir(), secret)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	edge := httptest.NewServer(p.Edge)
	t.Cleanup(func() {
		edge.Close()
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	text, err := token.Mint(secret, "ann", "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{3000, 6000} {
		player, err := client.New(client.Config{URL: edge.URL, Token: client.StaticToken(text), Device: "terminal"})
		if err != nil {
			t.Fatal(err)
		}
		if err := play(t.Context(), player, film{"100", "Low Tide"}, 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		record, err := player.Point(t.Context(), &messagev1.Object{Id: "100", Type: 1})
		if err != nil || record.GetPositionMs() != want {
			t.Errorf("got %v, %v, want %d ms", record, err, want)
		}
	}
}
