// SPDX-License-Identifier: Apache-2.0

// Command embed is a program that has Playhead in itself: its own mux serves the edge, and its own code reads the
// history. TOKEN_SECRET has 32 bytes at least; records are kept in ./playhead-data.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/playhead/playhead/embedded"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func main() {
	p, err := embedded.Open("playhead-data", []byte(os.Getenv("TOKEN_SECRET")))
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(p.Run(context.Background())) }()
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", routes(p))) //nolint:gosec // an example
}

func routes(p *embedded.Playhead) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", p.Edge)
	mux.HandleFunc("/watched/{user}", func(w http.ResponseWriter, r *http.Request) { // add who may see it
		page, err := p.History.List(r.Context(), &historyv1.ListRequest{Uid: r.PathValue("user"), Limit: 20})
		fmt.Fprintf(w, "%d objects, %v\n", len(page.GetItems()), err)
	})
	return mux
}
