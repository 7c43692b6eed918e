import java.time.OffsetDateTime
import org.openapitools.client.apis.HistoryApi
import org.openapitools.client.apis.RemovalApi
import org.openapitools.client.apis.ReportsApi
import org.openapitools.client.infrastructure.ApiClient
import org.openapitools.client.infrastructure.ClientException
import org.openapitools.client.models.Heartbeat
import org.openapitools.client.models.MediaObject
import playhead.Outbox
import playhead.Sender

fun main() {
    val url = System.getenv("PLAYHEAD_URL")
    ApiClient.accessToken = System.getenv("PLAYHEAD_TOKEN")
    val history = HistoryApi(url)

    val beat = Heartbeat(
        `object` = MediaObject(id = "100", type = 1), kind = Heartbeat.Kind.stop, positionMs = 90_000, durationMs = 600_000,
        eventTime = OffsetDateTime.now(), session = "s", device = "tv", meta = mapOf("title" to "Low Tide"), removedMeta = listOf("image"),
    )
    val outbox = Outbox()
    outbox.report(beat)
    Sender(ReportsApi(url), outbox) { check(it.status == "stored") { it } }.step()
    check(outbox.waiting.isEmpty()) { outbox.waiting }
    val point = history.getResumePoint(1, "100")
    check(point.meta?.get("title") == "Low Tide") { point }
    val listed = history.listHistory(limit = 10)
    RemovalApi(url).deleteObject(1, "100")
    val left = history.listHistory()
    try {
        error(history.getResumePoint(1, "100"))
    } catch (e: ClientException) {
        check(e.statusCode == 404) { e }
    }
    println("resume at ${point.resumeMs} ms, ${listed.items.size} listed, ${left.items.size} after the delete")
}
