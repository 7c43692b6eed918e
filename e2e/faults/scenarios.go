package faults

import (
	"fmt"
	"time"
)

// scenarios lists all cases; the numbers are those under which the cases are known.
func scenarios(o Options) []scenario {
	const mixed, gentle = "heartbeats, deletes, clears", "heartbeats of running viewings"
	killed := fmt.Sprintf("kill -9 of a random process or engine, %d times", o.Rounds)
	patience := time.Duration(o.Rounds) * 6 * time.Second
	all := []scenario{
		{name: "kill", load: mixed, fault: killed + "; Redis is a cluster, its slots move", more: patience, run: kill(o.Rounds, true)},
		{name: "kill-one", load: mixed, fault: killed + "; Redis is one server", more: patience, run: kill(o.Rounds, false)},
		{name: "1", load: gentle, fault: "kill -9 of all services, their users never come back", run: forgetful},
		{name: "2", load: mixed, fault: "SIGTERM, and twice, while Kafka hangs", run: farewell},
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
		{name: "21", load: mixed, fault: "failover to a replica that lags " + behind.String(), run: failover},
		{name: "21-torn", load: mixed, fault: "the append-only file is cut in mid-record", run: tornFile},
		{name: "22", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost, the jobs live", run: queuedLive},
		{name: "23", load: mixed, fault: "topic deleted, offsets moved, messages gone by retention", run: topic},
		{name: "24", load: mixed, fault: "the clock of Redis steps by " + step.String() + ", services die", run: steps},
		{name: "24-apart", load: mixed, fault: "clocks of services 300 ms and two minutes apart", run: apart},
		{name: "25", load: mixed, fault: "a cell of HBase and records of Redis that cannot be decoded", run: damage},
		{name: "26", load: mixed, fault: "Redis evicts, or writes no append-only file", run: volatile},
		{name: "30", load: mixed, fault: "the cache keeps records only for " + shortLife.String(), more: 2 * shortLife, run: expiry},
		{name: "30-keep", load: mixed, fault: "the same, and few of each user", more: 2 * shortLife, run: dropping},
		{name: "queued", load: "heartbeats acknowledged as queued", fault: "all of Redis and all services are lost", run: queued},
		{name: "away", load: mixed, fault: "services and jobs killed while HBase, then Kafka, is away", run: away},
		{name: "hour", load: "an hour at 2,000 heartbeats a second, as fast as they are taken", fault: "HBase down", asked: true, more: 8 * time.Minute, run: hour},
		{name: "rolling", load: gentle, fault: "every process restarted, one after the other", run: rolling},
		{name: "net", load: mixed, fault: "the line to Redis is cut, stalls, is slow one way", run: network},
	}
	all = append(all, slowCases()...)
	for i := range all {
		all[i].engines = true
	}
	return append(all,
		scenario{name: "alone", load: mixed, fault: "kill -9 of the all-in-one, 12 times", run: killAlone(false)},
		scenario{name: "18-torn", load: mixed, fault: "the same, and half a write at the end of the log", run: killAlone(true)},
		scenario{name: "18-two", load: mixed, fault: "a second process on the data directory", run: two},
		scenario{name: "18-full", load: mixed, fault: "disk full under the embedded store", run: full},
	)
}
