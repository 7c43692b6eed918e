package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/playhead/playhead/history-service/hot"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
)

type hotFlags struct {
	JSON bool `name:"json" help:"Print the figures as JSON."`

	adminPorts
}

// Help returns the introduction to --help.
func (*hotFlags) Help() string {
	return `Says which users and buckets report most, estimated by the services from one in four reports of the latest minute.`
}

func hottest(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f hotFlags
	if err := run.Parse("playhead hot", &f, args, getenv, out); err != nil {
		return err
	}
	if err := connect.Addresses("--admin", f.Admin...); err != nil {
		return err
	}
	var sum hot.Load
	for _, addr := range f.Admin {
		l, err := f.load(ctx, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		sum.Add(l)
	}
	if sum.Trim(); f.JSON {
		return printJSON(out, sum)
	}
	fmt.Fprintf(out, "%8.1f reports/s\n", sum.Rate)
	for _, u := range sum.Users {
		fmt.Fprintf(out, "%8.1f reports/s  user %s, bucket %d\n", u.Rate, u.UID, u.Bucket)
	}
	for _, b := range sum.Buckets {
		fmt.Fprintf(out, "%8.1f reports/s  bucket %d\n", b.Rate, b.Bucket)
	}
	return nil
}

func (f *hotFlags) load(ctx context.Context, addr string) (l hot.Load, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	resp, err := get(ctx, addr, "/hot")
	if err != nil {
		return l, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return l, fmt.Errorf("%s: give the admin ports of services", resp.Status)
	}
	return l, json.NewDecoder(resp.Body).Decode(&l)
}
