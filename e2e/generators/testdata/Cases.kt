// Takes the outbox of client/kotlin through the cases of client/testdata/outbox.json, which docs/clients.md explains.
import com.squareup.moshi.Moshi
import com.squareup.moshi.Types
import com.squareup.moshi.kotlin.reflect.KotlinJsonAdapterFactory
import java.io.File
import java.time.OffsetDateTime
import org.openapitools.client.models.FieldError
import org.openapitools.client.models.Heartbeat
import org.openapitools.client.models.HeartbeatResult
import org.openapitools.client.models.HistoryRecord
import org.openapitools.client.models.MediaObject
import playhead.Outbox
import playhead.Outcome

class Case(val name: String, val queue: Int = 500, val steps: List<String>)

class Machine(queue: Int) {
    private val outbox = Outbox(queue)
    private var made = 0L

    /** The outcomes of a step, or the reports that it sends. */
    fun step(verb: String, words: List<String>): List<String> = when (verb) {
        "report" -> named(outbox.report(report(words[0])))
        "send" -> outbox.next().map { name(it) + (it.ifMatch?.let { guard -> "@$guard" } ?: "") }
        "answer" -> named(outbox.answered(words.map(::result)))
        "invalid", "too_large" -> named(outbox.refused(verb == "too_large", FieldError("", verb)))
        "lost" -> named(outbox.lost())
        "wait" -> outbox.postponed().let { emptyList() }
        "resync" -> outbox.resync().let { emptyList() }
        "slept" -> outbox.doubt().let { emptyList() }
        "closed" -> outbox.closed().let { emptyList() }
        "seen" -> words[0].split(":").let { (id, etag) -> outbox.seen(record(id, etag)) }.let { emptyList() }
        else -> error("no such step: $verb")
    }

    private fun report(word: String): Heartbeat {
        val (id, second, session) = Regex("""(\w)\.(\d)(?:/(\w))?""").matchEntire(word)!!.destructured
        return Heartbeat(time(), Heartbeat.Kind.progress, MediaObject(id, 1), second.toLong() * 1000, device = "tv", session = session.ifEmpty { "s" })
    }

    private fun record(id: String, etag: String) = HistoryRecord(
        durationMs = 0, etag = etag, eventTime = time(), furthestMs = 5, `object` = MediaObject(id, 1), plays = 0, positionMs = 5, resumeMs = 5,
        state = HistoryRecord.State.stopped, session = "other", device = "phone",
    )

    private fun result(word: String): HeartbeatResult {
        val (id, second, status, etag, others) = Regex("""(\w)\.(\d)=(\w+)(?::(\w+))?(!)?""").matchEntire(word)!!.destructured
        val known = record(id, etag).let { if (others.isEmpty()) it.copy(session = "s", device = "tv", positionMs = second.toLong() * 1000) else it }
        return HeartbeatResult(HeartbeatResult.Status.valueOf(status), record = known.takeIf { etag.isNotEmpty() })
    }

    private fun time() = OffsetDateTime.parse("2026-03-01T20:15:00Z").plusSeconds(++made)

    private fun name(beat: Heartbeat) = "${beat.`object`.id}.${beat.positionMs / 1000}${if (beat.session == "s") "" else "/${beat.session}"}"

    private fun named(outcomes: List<Outcome>) = outcomes.map { "${name(it.beat)}=${it.status}" }
}

fun main(args: Array<String>) {
    val type = Types.newParameterizedType(List::class.java, Case::class.java)
    val cases = Moshi.Builder().add(KotlinJsonAdapterFactory()).build().adapter<List<Case>>(type).fromJson(File(args[0]).readText())!!
    for (case in cases) {
        val machine = Machine(case.queue)
        for ((i, step) in case.steps.withIndex()) {
            val does = step.substringBefore(" -> ").split(" ")
            val want = if (does[0] == "send") does.drop(1) else step.substringAfter(" -> ", "").split(" ").filter { it.isNotEmpty() }
            val got = machine.step(does[0], does.drop(1))
            check(got == want) { "${case.name}, step $i, $step: got $got" }
        }
    }
    println("${cases.size} cases")
}
