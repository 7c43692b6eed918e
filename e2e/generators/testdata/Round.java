import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.HistoryApi;
import org.openapitools.client.api.RemovalApi;
import org.openapitools.client.api.ReportsApi;
import org.openapitools.client.model.Heartbeat;
import org.openapitools.client.model.HeartbeatResult;
import org.openapitools.client.model.HeartbeatsBody;
import org.openapitools.client.model.MediaObject;

class Round {
  public static void main(String[] args) throws ApiException {
    ApiClient client = new ApiClient();
    client.updateBaseUri(System.getenv("PLAYHEAD_URL"));
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + System.getenv("PLAYHEAD_TOKEN")));
    HistoryApi history = new HistoryApi(client);

    Heartbeat beat = new Heartbeat()._object(new MediaObject().id("100").type(1L)).kind(Heartbeat.KindEnum.STOP)
        .positionMs(90_000L).durationMs(600_000L).eventTime(OffsetDateTime.now()).meta(Map.of("title", "Low Tide")).removedMeta(List.of("image"));
    HeartbeatResult result = new ReportsApi(client).reportHeartbeats(new HeartbeatsBody().heartbeats(List.of(beat)), null, null).getResults().get(0);
    check(result.getStatus() == HeartbeatResult.StatusEnum.STORED, result);
    var point = history.getResumePoint(1L, "100", null, null);
    check("Low Tide".equals(point.getMeta().get("title")), point);
    var listed = history.listHistory(10, null, null, null, null, null, null);
    new RemovalApi(client).deleteObject(1L, "100", null, null);
    var left = history.listHistory(null, null, null, null, null, null, null);
    try {
      check(false, history.getResumePoint(1L, "100", null, null));
    } catch (ApiException e) {
      check(e.getCode() == 404, e);
    }
    System.out.printf("resume at %d ms, %d listed, %d after the delete%n", point.getResumeMs(), listed.getItems().size(), left.getItems().size());
  }

  private static void check(boolean holds, Object shown) {
    if (!holds) throw new IllegalStateException(shown.toString());
  }
}
