package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// A player continues from the record that it read and reports playback. After a conflict with another device it
// asks the user.
func Example() {
	var player *client.Client
	player, err := client.New(client.Config{
		URL:   "https://edge.example.com",
		Token: func(context.Context) (string, error) { return "from your backend", nil },
		Zone:  "Europe/Berlin",
		Answered: func(a client.Answer) {
			switch a.Status {
			case messagev1.Status_STATUS_CONFLICT:
				fmt.Println("go on at", a.Record.PositionMs, "ms?") // in fact the user decides
				player.Seen(a.Record)
			case messagev1.Status_STATUS_INVALID:
				fmt.Println("mend the player:", a.Refusal)
			}
		},
		Day: func(d *messagev1.DaySeen) {
			if d.First {
				fmt.Println("welcome today")
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- player.Run(ctx) }()

	player.Seen(&messagev1.Item{Object: &messagev1.Object{Id: "100", Type: 1}, Etag: 0x5eed}) // the record of an earlier read
	if err := player.Report(&messagev1.Heartbeat{
		ObjectId: "100", ObjectType: 1, Kind: messagev1.Kind_KIND_PROGRESS, PositionMs: 61_000,
		EventTimeMs: time.Now().UnixMilli(), Session: "3f2c", Device: "tv",
	}); err != nil {
		fmt.Println(err)
	}

	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := player.Flush(waiting); err != nil {
		fmt.Println(err)
	}
	stop()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
}
