// Package faults breaks the product under load and counts the cost. It starts real engines and the real commands,
// kills, suspends and disconnects them, and compares the stores with the acknowledgements.
//
// One oracle judges every case. A client notes each event before sending it, and each acknowledgement. At rest
// there is no dirty mark and no message in the queue. Then the cache and the archive must have, for every key, a
// merge of all acknowledged events and any of the others. They must have nothing at or before a delete. This
// covers the latest event, the furthest position, plays, watched time, metadata and the resume point. Pages must
// show all of it without a gap or a repeat. The oracle computes this without the product's merge.
//
// Readers also read during the faults. A read must show everything acknowledged before it began, unless the item
// is incomplete or the case loses the cache itself.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

type scenario struct {
	name, load, fault string
	engines           bool          // needs the engines
	asked             bool          // runs only by name: it takes minutes
	more              time.Duration // time beyond the limit
	run               func(context.Context, *trial) error
}

// Names returns the cases in the order they run.
func Names() []string {
	var names []string
	for _, s := range scenarios(Options{}) {
		names = append(names, s.name)
	}
	return names
}

// Run runs cases one after the other and reports each result to tell. It fails if a name is unknown or the
// engines do not start; findings are in the results. After ctx is done it ends its processes and returns.
func Run(ctx context.Context, o Options, names []string, tell func(Result)) error {
	chosen, err := choose(scenarios(o), names)
	if err != nil {
		return err
	}
	es := engines{}
	if slices.ContainsFunc(chosen, func(s scenario) bool { return s.engines }) {
		if es, err = openEngines(o); err != nil {
			return err
		}
	}
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		tell(s.try(ctx, o, es))
	}
	return errors.Join(ctx.Err(), es.kill())
}

func choose(all []scenario, names []string) ([]scenario, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(s scenario) bool { return s.asked }), nil
	}
	var chosen []scenario
	for _, n := range names {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == n })
		family := slices.DeleteFunc(slices.Clone(all), func(s scenario) bool { return !strings.HasPrefix(s.name, n+"-") })
		if i < 0 && len(family) > 0 { // slow stands for all of slow-...
			chosen = append(chosen, family...)
			continue
		}
		if i < 0 {
			return nil, fmt.Errorf("no case %q, want some of %s", n, strings.Join(Names(), ","))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func (s scenario) try(ctx context.Context, o Options, es engines) Result {
	t := &trial{Options: o, es: es, rand: rand.New(rand.NewPCG(o.Seed, 0)), book: newBook()} //nolint:gosec // repeatable
	t.res = &Result{Case: s.name, Load: s.load, Fault: s.fault, Seed: o.Seed}
	var err error
	if s.engines {
		err = es.start(ctx) // has its own limits
	}
	limit, began := o.Limit+s.more, time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	if err == nil {
		err = s.run(ctx, t)
	}
	if t.stack != nil {
		for _, end := range t.stack.surprises() {
			err = errors.Join(err, errors.New(end))
		}
		err = errors.Join(err, t.stack.close())
	}
	if t.after != nil {
		err = errors.Join(err, t.after())
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		t.res.Error = err.Error()
	}
	t.res.Acknowledged = t.book.count()
	o.Log.Info("case done", "case", s.name, "lost", t.res.Lost, "resurrected", t.res.Resurrected, "error", t.res.Error, "took", time.Since(began).Round(100*time.Millisecond))
	return *t.res
}

// scenarios returns all cases, with their established numbers.
func scenarios(o Options) []scenario {
	const mixed, gentle = "heartbeats, deletes, clears", "heartbeats of running viewings"
	killed := fmt.Sprintf("kill -9 of a random process or engine, %d times", o.Rounds)
	patience := time.Duration(o.Rounds) * 6 * time.Second
	all := []scenario{
		{name: "kill", load: mixed, fault: killed + "; Redis is a cluster, its slots move", more: patience, run: randomKills(o.Rounds, true)},
		{name: "kill-one", load: mixed, fault: killed + "; Redis is one server", more: patience, run: randomKills(o.Rounds, false)},
		{name: "kill-parts", load: mixed, fault: killed + ", while what is old is moved into segments; then the jobs alone", asked: true, more: patience + 5*time.Minute, run: killedCompactions(o.Rounds)},
		{name: "counts", load: "completions, some repeated, taken back or deleted; counted and sent as plays", fault: fmt.Sprintf("a random process or engine killed or suspended, %d times", o.Rounds), asked: true, more: 2*patience + 2*time.Minute, run: countedKills(o.Rounds)},
		{name: "1", load: gentle, fault: "kill -9 of all services, their users never come back", run: forgetful},
		{name: "2", load: mixed, fault: "SIGTERM, and twice, while Kafka hangs", run: terminated},
		{name: "3", load: "put, delete, put in one millisecond", fault: "every order, two services", run: oneMoment},
		{name: "4", load: mixed, fault: "puts land after deletes, after a compaction, by a second delivery", run: latePuts},
		{name: "5", load: "clear, then a week of old reports", fault: "late upload", run: latePhone},
		{name: "6", load: "100 objects in one batch", fault: "puts and deletes mixed", run: hundred},
		{name: "7", load: mixed, fault: "jobs killed, stopped and frozen", run: rebalance},
		{name: "8", load: mixed, fault: "undecodable messages, and records that HBase refuses for good; then driven again", run: poison},
		{name: "9", load: mixed, fault: "Redis refuses writes, forgets scripts; a job's workers panic", run: storm},
		{name: "10", load: mixed, fault: fmt.Sprintf("HBase down for %v", outageFor), more: outageFor, run: outage},
		{name: "11", load: mixed, fault: "HBase refuses puts while regions close and open", run: refusals},
		{name: "12", load: gentle, fault: "Redis evicts records before the job reads them", run: eviction},
		{name: "13", load: mixed, fault: "Redis comes back with older content", run: rollback},
		{name: "13-held", load: gentle, fault: "the same, while services hold what is lost", run: rollbackHeld},
		{name: "14", load: "two devices, rewinds, wrong clocks", fault: "none", run: devices},
		{name: "15", load: mixed, fault: "Redis emptied, everybody reconnects", run: stampede},
		{name: "16", load: gentle, fault: "two services by turns", run: alternating},
		{name: "17", load: "viewings of 89 to 91 days ago", fault: "replay", run: oldRows},
		{name: "19", load: mixed, fault: "slots of a Redis Cluster move", run: slots},
		{name: "20", load: mixed, fault: "Redis emptied under load, its run id unchanged", run: emptied},
		{name: "21", load: mixed, fault: "failover to a replica that lags " + replicaLag.String(), run: failover},
		{name: "21-back", load: mixed, fault: "Redis follows a replica that lags " + replicaLag.String() + ", and is the master again", run: failback},
		{name: "21-torn", load: mixed, fault: "the append-only file is cut in mid-record", run: tornFile},
		{name: "22", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost, the jobs live", run: queuedLive},
		{name: "23", load: mixed, fault: "topic deleted, offsets moved, messages gone by retention", run: topic},
		{name: "24", load: mixed, fault: "the clock of Redis steps by " + clockStep.String() + ", services die", run: clockSteps},
		{name: "24-far", load: mixed, fault: "the clock of Redis is 100 days ahead for 3 s", run: farAhead},
		{name: "24-apart", load: mixed, fault: "clocks of services 300 ms and two minutes apart", run: apart},
		{name: "25", load: mixed, fault: "a cell of HBase and records of Redis that cannot be decoded", run: damage},
		{name: "26", load: mixed, fault: "Redis evicts, or writes no append-only file", run: volatile},
		{name: "30", load: mixed, fault: "the cache keeps records only for " + shortTTL.String(), more: 2 * shortTTL, run: expiry},
		{name: "30-keep", load: mixed, fault: "the same, and few of each user", more: 2 * shortTTL, run: dropping},
		{name: "queued", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost", run: queued},
		{name: "away", load: mixed, fault: "services and jobs killed while HBase, then Kafka, is away", run: away},
		{name: "hour", load: "an hour at 2,000 heartbeats a second, as fast as they are taken", fault: "HBase down", asked: true, more: 8 * time.Minute, run: hour},
		{name: "compacting", load: gentle, fault: "every process restarted, one after the other", run: compacting},
		{name: "upgrade", load: mixed, fault: "every process replaced by one of another version, one after the other, and back", asked: true, more: 2 * time.Minute, run: upgraded},
		{name: "edges", load: mixed, fault: "edges behind a balancer stopped with SIGTERM, in turn", asked: true, more: 2 * time.Minute, run: stoppedEdges},
		{name: "edges-hasty", load: mixed, fault: "the same without a lame duck: connections are refused, and the case notices", asked: true, more: 2 * time.Minute, run: hastyEdges},
		{name: "drill-redis", load: mixed, fault: "the machine of Redis is lost: restored on a copy of its files, then empty", asked: true, more: time.Minute, run: drillRedis},
		{name: "drill-kafka", load: mixed, fault: "all data of Kafka is lost", asked: true, more: time.Minute, run: drillKafka},
		{name: "drill-hbase", load: mixed, fault: "HBase goes back to a snapshot", asked: true, more: 2 * time.Minute, run: drillHBase},
		{name: "drill-rights", load: mixed, fault: "HBase asks for rights, and has too few", asked: true, more: 3 * time.Minute, run: drillRights},
		{name: "net", load: mixed, fault: "the line to Redis is cut, stalls, is slow one way", run: network},
	}
	all = append(all, slowCases()...)
	for i := range all {
		all[i].engines = true
	}
	return append(all,
		scenario{name: "alone", load: mixed, fault: "kill -9 of the all-in-one, 12 times", run: killedAlone(false)},
		scenario{name: "18-torn", load: mixed, fault: "the same, and half a write at the end of the log", run: killedAlone(true)},
		scenario{name: "18-two", load: mixed, fault: "a second process on the data directory", run: twoProcesses},
		scenario{name: "18-full", load: mixed, fault: "disk full under the embedded store", run: diskFull},
	)
}

// slowCases take, without the start of the engines, about half a minute (silent, hbase) or a minute (kafka,
// service, edge, waiting). Others take two minutes (master-1, master-2, behind) or three (overload).
func slowCases() []scenario {
	const load = "players on WebSockets, watching"
	return []scenario{
		{name: "silent", load: load, fault: "one of four Redis masters silent for 6 s", run: silentMaster(1, 1, 6*time.Second)},
		{name: "slow-master-1", load: load, fault: "one of four Redis masters silent for 12 s, 5 times", asked: true, more: 2 * time.Minute, run: silentMaster(1, 5, 12*time.Second)},
		{name: "slow-master-2", load: load, fault: "the same with two services", asked: true, more: 2 * time.Minute, run: silentMaster(2, 5, 12*time.Second)},
		{name: "slow-behind", load: load, fault: "Redis takes 1.2 s, with one, two and three services", asked: true, more: 2 * time.Minute, run: behindAll},
		{name: "slow-overload", load: load, fault: "three times as much as Redis takes, with one, two and six services", asked: true, more: 3 * time.Minute, run: overload},
		{name: "slow-kafka", load: load, fault: "the broker stands still for 20 s", asked: true, more: time.Minute, run: stalledBroker},
		{name: "slow-hbase", load: load, fault: "the region server stands still for 10 s", asked: true, more: time.Minute, run: stalledRegions},
		{name: "slow-service", load: load, fault: "one of two services stands still for 60 s", asked: true, more: time.Minute, run: standstill},
		{name: "slow-edge", load: load, fault: "the edge stands still for 10 s, 3 times", asked: true, more: time.Minute, run: stoppedEdge},
		{name: "slow-waiting", load: "many players with a message each", fault: "the only service stands still for 5 s", asked: true, more: 2 * time.Minute, run: waiting},
	}
}
