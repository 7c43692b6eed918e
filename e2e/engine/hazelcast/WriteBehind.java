import com.hazelcast.config.Config;
import com.hazelcast.config.InMemoryFormat;
import com.hazelcast.config.MapStoreConfig;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.map.IMap;
import com.hazelcast.map.MapStoreAdapter;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;

/**
 * A service that keeps the newest heartbeat of each key in a map of Hazelcast, of which it is a member itself, and has the map
 * write into HBase some seconds later: WriteBehind PORT MEMBERPORT ZOOKEEPER TABLE SECONDS.
 *
 * A request is how many entries there are, and of each a key and a value, each after its length. To one of none the answer is how
 * many entries wait for HBase and how many it has taken; to others it is of no meaning. Numbers have four bytes, those of the
 * answer eight. A request of less than none empties the map.
 */
public class WriteBehind {
	static final AtomicLong taken = new AtomicLong();

	/** A key is a row and a column with a zero between them. */
	static class Store extends MapStoreAdapter<String, byte[]> {
		private final Connection connection;
		private final TableName table;

		Store(Connection connection, TableName table) {
			this.connection = connection;
			this.table = table;
		}

		@Override
		public void store(String key, byte[] value) {
			storeAll(Map.of(key, value));
		}

		@Override
		public void storeAll(Map<String, byte[]> entries) {
			List<Put> puts = new ArrayList<>(entries.size());
			byte[] family = "info".getBytes(StandardCharsets.UTF_8);
			entries.forEach((key, value) -> {
				int end = key.indexOf('\0');
				puts.add(new Put(key.substring(0, end).getBytes(StandardCharsets.UTF_8))
						.addColumn(family, key.substring(end + 1).getBytes(StandardCharsets.UTF_8), value));
			});
			try (Table t = connection.getTable(table)) {
				t.put(puts);
			} catch (IOException e) {
				throw new RuntimeException(e); // the map tries again
			}
			taken.addAndGet(puts.size());
		}

		@Override
		public Map<String, byte[]> loadAll(Collection<String> keys) {
			return Map.of();
		}
	}

	public static void main(String[] args) throws Exception {
		Configuration hbase = HBaseConfiguration.create();
		String[] quorum = args[2].split(":");
		hbase.set("hbase.zookeeper.quorum", quorum[0]);
		hbase.set("hbase.zookeeper.property.clientPort", quorum[1]);
		Config config = new Config().setProperty("hazelcast.phone.home.enabled", "false").setProperty("hazelcast.logging.type", "none");
		config.getNetworkConfig().setPort(Integer.parseInt(args[1])).getInterfaces().setEnabled(true).addInterface("127.0.0.1");
		config.getNetworkConfig().getJoin().getMulticastConfig().setEnabled(false);
		config.getNetworkConfig().getJoin().getAutoDetectionConfig().setEnabled(false);
		config.getMapConfig("history").setBackupCount(0).setInMemoryFormat(InMemoryFormat.BINARY).setMapStoreConfig(new MapStoreConfig()
				.setImplementation(new Store(ConnectionFactory.createConnection(hbase), TableName.valueOf(args[3])))
				.setWriteDelaySeconds(Integer.parseInt(args[4])).setWriteBatchSize(1000).setWriteCoalescing(true));
		IMap<String, byte[]> map = Hazelcast.newHazelcastInstance(config).getMap("history");
		map.size(); // it is there
		try (ServerSocket door = new ServerSocket(Integer.parseInt(args[0]), 64, InetAddress.getByName("127.0.0.1"))) {
			while (true) {
				Socket socket = door.accept();
				new Thread(() -> serve(socket, map)).start();
			}
		}
	}

	static void serve(Socket socket, IMap<String, byte[]> map) {
		try (socket) {
			socket.setTcpNoDelay(true);
			DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
			DataOutputStream out = new DataOutputStream(socket.getOutputStream());
			byte[] answer = new byte[16];
			while (true) {
				Map<String, byte[]> entries = new HashMap<>();
				int n = in.readInt();
				if (n < 0) {
					map.evictAll();
				}
				for (; n > 0; n--) {
					String key = new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
					entries.put(key, in.readNBytes(in.readInt()));
				}
				if (!entries.isEmpty()) {
					map.setAll(entries);
				}
				ByteBuffer.wrap(answer).putLong(entries.isEmpty() ? map.getLocalMapStats().getDirtyEntryCount() : 0).putLong(taken.get());
				out.write(answer);
			}
		} catch (EOFException e) {
			// the caller has gone
		} catch (IOException e) {
			e.printStackTrace();
		}
	}
}
