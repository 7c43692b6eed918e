// SPDX-License-Identifier: Apache-2.0

// Command go is a player in a terminal that goes on where the user stopped:
//
//	PLAYHEAD_URL=http://127.0.0.1:8080 PLAYHEAD_TOKEN=... go run ./examples/go 100 "Low Tide"
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go run ./examples/go ID TITLE")
	}
	player, err := client.New(client.Config{URL: os.Getenv("PLAYHEAD_URL"), Token: client.StaticToken(os.Getenv("PLAYHEAD_TOKEN")), Device: "terminal"})
	if err != nil {
		log.Fatal(err)
	}
	if err := play(context.Background(), player, film{os.Args[1], os.Args[2]}, time.Second); err != nil {
		log.Fatal(err)
	}
}

type film struct{ id, title string }

// play watches three seconds from where the user stopped; tests have shorter ones.
func play(ctx context.Context, player *client.Client, f film, second time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	record, err := player.Point(ctx, &messagev1.Object{Id: f.id, Type: 1}) // nil: never played
	if err != nil {
		return err
	}
	from, began := record.GetResumeMs(), time.Now()
	player.Seen(record) // another device may go on meanwhile: that is a conflict
	fmt.Printf("%s from %s\n", f.title, time.Duration(from)*time.Millisecond)
	go func() { _ = player.Run(ctx) }()
	for n, kind := range []messagev1.Kind{messagev1.Kind_KIND_START, messagev1.Kind_KIND_PROGRESS, messagev1.Kind_KIND_PROGRESS, messagev1.Kind_KIND_STOP} {
		time.Sleep(time.Until(began.Add(time.Duration(n) * second)))
		err := player.Report(&messagev1.Heartbeat{
			ObjectId: f.id, ObjectType: 1, Kind: kind, PositionMs: from + int64(n)*1000, DurationMs: 600_000,
			EventTimeMs: time.Now().UnixMilli(), Session: began.String(), Meta: map[string]string{"title": f.title},
		})
		if err != nil {
			return err
		}
	}
	return player.Flush(ctx) // waits until everything is answered
}
