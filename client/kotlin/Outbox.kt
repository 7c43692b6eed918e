// SPDX-License-Identifier: Apache-2.0
//
// The queue of unanswered reports, and what sends it, on top of the client that openapi-generator makes of
// docs/api/openapi.json. Copy this file and change what you like; docs/clients.md has the rules, and make generators
// takes it through the cases of client/testdata/outbox.json. It needs no more than the generated client does.
package playhead

import java.io.IOException
import java.time.Instant
import java.time.OffsetDateTime
import java.time.ZoneOffset
import org.openapitools.client.apis.ReportsApi
import org.openapitools.client.infrastructure.Serializer
import org.openapitools.client.infrastructure.Success
import org.openapitools.client.models.FieldError
import org.openapitools.client.models.Heartbeat
import org.openapitools.client.models.HeartbeatResult
import org.openapitools.client.models.HeartbeatResult.Status
import org.openapitools.client.models.HeartbeatResults
import org.openapitools.client.models.HeartbeatsBody
import org.openapitools.client.models.HistoryRecord
import org.openapitools.client.models.MediaObject

/** What became of a report: a status of the API, or "superseded" or "dropped" by a full queue. */
class Outcome(val beat: Heartbeat, val status: String, val record: HistoryRecord? = null, val error: FieldError? = null)

private const val MAX_REPORTS = 100 // of a message
private const val MAX_BYTES = 64 shl 10
private const val FIRST_BYTES = 16 shl 10
private const val MAX_REPORT_BYTES = 16 shl 10
private const val MAX_TRIES = 3 // of a report alone in its message, before others go first
private const val NO_RECORD = "ffffffffffffffff" // the etag of a missing record

/**
 * The unanswered reports, oldest first: a state machine without clock and network. Each event returns the outcomes to
 * tell the player. It is not thread-safe. [saved] is the queue of an earlier run, which has [waiting].
 */
class Outbox(private val limit: Int = 500, saved: List<Heartbeat> = emptyList()) {
    private class Item(var beat: Heartbeat) {
        val bytes = adapter.toJson(beat).encodeToByteArray().size + 40 // room for a guard
        val target = beat.`object`
        val viewing = Triple(target, beat.session, if (beat.session.isNullOrEmpty()) beat.device else null)
        var tries = 0
        var guard: String? = null // as sent
    }

    private class Known(val etag: String, var doubt: Int) // the loss of sight since which others may have changed it, or 0

    private var items = saved.map(::Item)
    private var sent = 0 // the first ones are in flight
    private var sentBytes = 0
    private var sentLosses = 0
    private var room = FIRST_BYTES
    private var ceiling = MAX_BYTES
    private var watching = false // others' changes arrive
    private var losses = 1 // of sight
    private val known = LinkedHashMap<MediaObject, Known>()
    private val seenAt = HashMap<MediaObject, OffsetDateTime>() // records seen since the message was sent
    private val own = LinkedHashSet<Triple<MediaObject, String?, String?>>() // sessions and devices of our reports

    init {
        for (item in items.asReversed()) item.beat.ifMatch?.let { unknown(item.target, it) }
        for (item in items) unknown(item.target)
        for (item in items) remember(item)
    }

    /** The reports to store before they are sent, and after each event. */
    val waiting: List<Heartbeat> get() = items.map { it.beat }

    /** Appends a report. Give it a session and a device, and the event's time. */
    fun report(beat: Heartbeat): List<Outcome> {
        val target = beat.`object`
        val record = known[target]
        val doubted = record != null && (record.doubt != 0 || items.any { it.target == target && it.beat.ifMatch != null })
        beat.ifMatch?.let { note(target, it, losses) } // the caller's doubt also covers later reports
        val item = Item(if (beat.ifMatch == null && doubted) beat.copy(ifMatch = record?.etag) else beat)
        if (item.bytes > MAX_REPORT_BYTES) return listOf(Outcome(beat, "invalid", error = FieldError("", "want at most $MAX_REPORT_BYTES bytes")))
        items = items + item
        remember(item)
        val outcomes = if (items.size > limit) listOf(shed()) else emptyList()
        if (!watching) unknown(target)
        return outcomes
    }

    /** The reports of the next message; none while one is in flight. Of a guarded object it has one guard and one viewing. */
    fun next(): List<Heartbeat> {
        if (sent > 0) return emptyList()
        sentBytes = 0
        sentLosses = losses
        seenAt.clear()
        val last = HashMap<MediaObject, Item>()
        for (item in items) {
            val before = last[item.target]
            val clash = before != null && (before.beat.ifMatch != item.beat.ifMatch || item.beat.ifMatch != null && before.viewing != item.viewing)
            if (sent > 0 && (sent >= MAX_REPORTS || sentBytes + item.bytes > room || clash)) break
            last[item.target] = item
            item.guard = item.beat.ifMatch
            sentBytes += item.bytes
            sent++
        }
        return waiting.take(sent)
    }

    /** Takes the results of the message in flight. If they were [quick], the next message may be larger. */
    fun answered(results: List<HeartbeatResult>, quick: Boolean = true): List<Outcome> {
        if (results.size != sent) return lost()
        val flown = items.take(sent)
        val ended = flown.zip(results).filter { (item, result) -> ends(item, result) }
        val gone = ended.mapTo(HashSet()) { it.first }
        items = behind(items.drop(sent), flown.filter { it !in gone })
        sent = 0
        if (quick) room = maxOf(room, 2 * sentBytes).coerceAtMost(ceiling)
        return ended.map { (item, result) -> Outcome(item.beat, result.status.value, result.record, result.error) }
    }

    /** Takes a refusal of the whole message. The next one is half as large; a report that is refused alone ends. */
    fun refused(tooLarge: Boolean, error: FieldError): List<Outcome> {
        val flown = halve()
        if (tooLarge) ceiling = room
        val alone = flown.singleOrNull() ?: return emptyList()
        items = items.drop(1)
        room = FIRST_BYTES
        ceiling = MAX_BYTES
        return listOf(Outcome(alone.beat, "invalid", error = error))
    }

    /** No answer came: the next message is half as large, and a report that fails alone again and again goes last. */
    fun lost(): List<Outcome> {
        val alone = halve().singleOrNull() ?: return emptyList()
        if (++alone.tries >= MAX_TRIES) {
            alone.tries = 0
            items = behind(items.drop(1), listOf(alone))
        }
        return emptyList()
    }

    /** The edge asked to come back later, with the same. */
    fun postponed() {
        sent = 0
    }

    /** Others' changes arrive from now on (a push said resync). Earlier ones may have been missed. */
    fun resync() {
        watching = true
        doubt()
    }

    /** The connection for pushes ended. */
    fun closed() {
        watching = false
        sent = 0
        doubt()
    }

    /** Others may have changed what is known: after a sleep, and at each end of a connection. */
    fun doubt() {
        losses++
        for (item in items) unknown(item.target)
        for (record in known.values) record.doubt = losses
    }

    /** The record from which the player goes on: call it when a player starts, and after a conflict. */
    fun seen(record: HistoryRecord) {
        note(record.`object`, record.etag, if (watching) 0 else losses)
        seenAt[record.`object`] = record.eventTime
    }

    /** Whether a report is finished. Otherwise it waits again. */
    private fun ends(item: Item, result: HeartbeatResult): Boolean {
        val record = result.record
        val ours = record != null && (Triple(item.target, record.session, record.device) in own || glanced(item, result.status, record))
        if (record != null && ours) follow(item, record)
        return when {
            result.status == Status.unavailable -> false
            result.status != Status.conflict || item.guard == null -> true
            record == null -> { // it was removed: nothing to be in conflict with
                val seen = item.target in seenAt // another one, since
                renew(item.target, null) { !seen || it.beat.ifMatch != known[item.target]?.etag }
                if (!seen) note(item.target, NO_RECORD, losses)
                false
            }
            ours -> false // an answer was lost: we are in conflict with ourselves
            else -> {
                if (known[item.target]?.etag in listOf(null, item.guard)) note(item.target, item.guard!!, losses) // until seen
                true
            }
        }
    }

    /** Whether another device has only just begun, at the report's position. */
    private fun glanced(item: Item, status: Status, record: HistoryRecord): Boolean =
        record.early == true && (status == Status.stored && item.guard != null ||
            status in listOf(Status.stored, Status.unchanged) && record.positionMs == item.beat.positionMs)

    /** The report's viewing goes on from the record that it left, and so does what was guarded by the one before. */
    private fun follow(item: Item, record: HistoryRecord) {
        val before = known[item.target]
        val overtaken = seenAt[item.target]?.isAfter(record.eventTime) == true // the player goes on from a newer one
        renew(item.target, record.etag) {
            if (it.beat.ifMatch == before?.etag) !overtaken else it.viewing == item.viewing || it.beat.ifMatch == (item.guard ?: NO_RECORD)
        }
        if (overtaken) return
        val doubt = before?.doubt ?: losses
        note(item.target, record.etag, if (!watching) losses else if (doubt <= sentLosses) 0 else doubt)
    }

    private fun renew(target: MediaObject, etag: String?, which: (Item) -> Boolean) {
        for (item in items) if (item.target == target && item.beat.ifMatch != null && which(item)) item.beat = item.beat.copy(ifMatch = etag)
    }

    /** Drops a progress that a later report of its viewing supersedes, or else the oldest report that is not in flight. */
    private fun shed(): Outcome {
        val furthest = HashMap<Any, Long>()
        var victim = sent
        var status = "dropped"
        for (i in items.indices.reversed()) {
            if (i < sent) break
            val (item, position) = items[i] to items[i].beat.positionMs
            if (item.beat.kind == Heartbeat.Kind.progress && position <= (furthest[item.viewing] ?: -1)) {
                victim = i
                status = "superseded"
            }
            furthest[item.viewing] = maxOf(position, furthest[item.viewing] ?: 0)
        }
        val beat = items[victim].beat
        items = items.filterIndexed { i, _ -> i != victim }
        return Outcome(beat, status)
    }

    private fun halve(): List<Item> {
        if (sent > 0) room = minOf(room, (sentBytes + 1) / 2)
        return items.take(sent).also { sent = 0 }
    }

    /** Some reports behind those of other objects; the order within an object stays. */
    private fun behind(rest: List<Item>, some: List<Item>): List<Item> {
        val (mates, others) = rest.partition { item -> some.any { it.target == item.target } }
        return others + some + mates
    }

    private fun unknown(target: MediaObject, etag: String = NO_RECORD) {
        if (target !in known) note(target, etag, losses)
    }

    private fun note(target: MediaObject, etag: String, doubt: Int) {
        known.remove(target)
        known[target] = Known(etag, doubt)
        if (known.size > limit) known.remove(known.keys.first())
    }

    private fun remember(item: Item) {
        own.add(Triple(item.target, item.beat.session, item.beat.device))
        if (own.size > 2 * limit) own.remove(own.first())
    }

    private companion object {
        val adapter = Serializer.moshi.adapter(Heartbeat::class.java)!!
    }
}

/** Sends an outbox over HTTP, from one thread: call [step] again and again, after the time that it returns. */
class Sender(private val api: ReportsApi, private val outbox: Outbox, private val told: (Outcome) -> Unit) {
    private var failures = 0

    /** Sends one message. Returns the milliseconds until the next step; 1000 if there is nothing to send. */
    fun step(): Long {
        val beats = outbox.next()
        if (beats.isEmpty()) return 1000
        val began = System.nanoTime()
        val answer = try {
            api.reportHeartbeatsWithHttpInfo(HeartbeatsBody(beats, records = true, sentAt = Instant.now().atOffset(ZoneOffset.UTC)), null, null)
        } catch (e: IOException) {
            outbox.lost()
            return backoff()
        }
        val results = (answer as? Success<*>)?.data as? HeartbeatResults
        if (results != null) {
            val outcomes = outbox.answered(results.results, System.nanoTime() - began < 2_500_000_000)
            outcomes.forEach(told)
            return if (outcomes.isEmpty()) backoff() else 0L.also { failures = 0 }
        }
        val wait = answer.headers.entries.firstOrNull { it.key.equals("Retry-After", ignoreCase = true) }?.value?.firstOrNull()?.toLongOrNull()
        when (answer.statusCode) {
            400, 413, 422 -> outbox.refused(answer.statusCode == 413, FieldError("", "refused with ${answer.statusCode}")).forEach(told)
            401, 429, 503 -> outbox.postponed()
            else -> outbox.lost()
        }
        return if (wait != null) wait.coerceAtMost(3600) * 1000 + (0L..500L).random() else backoff()
    }

    private fun backoff(): Long = (Math.random() * minOf(500L shl minOf(failures++, 6), 30_000L)).toLong()
}
