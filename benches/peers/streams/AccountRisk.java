import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The benchmark's job on Kafka Streams: JSON in, count and total per account, JSON out, exactly once.
 *
 * <p>Arguments are those of every contender, as name=value: broker, input, output, store, interval-ms.
 */
public final class AccountRisk {
  /** What comes in. */
  public static final class Purchase {
    public int account;
    public long id;
    public long cents;
  }

  /** What goes out. */
  @JsonPropertyOrder({"account", "id", "count", "total"})
  public static final class Assessment {
    public int account;
    public long id;
    public long count;
    public long total;
  }

  /** What an account has spent so far. */
  record Spent(long count, long total) {}

  static final class Risk implements Processor<byte[], Purchase, byte[], Assessment> {
    private ProcessorContext<byte[], Assessment> context;
    private KeyValueStore<Integer, Spent> spent;

    @Override
    public void init(ProcessorContext<byte[], Assessment> context) {
      this.context = context;
      spent = context.getStateStore("spent");
    }

    @Override
    public void process(Record<byte[], Purchase> record) {
      Purchase purchase = record.value();
      Spent before = spent.get(purchase.account);
      Spent now =
          before == null
              ? new Spent(1, purchase.cents)
              : new Spent(before.count() + 1, before.total() + purchase.cents);
      spent.put(purchase.account, now);
      Assessment assessment = new Assessment();
      assessment.account = purchase.account;
      assessment.id = purchase.id;
      assessment.count = now.count();
      assessment.total = now.total();
      context.forward(record.withValue(assessment));
    }
  }

  static <T> Serde<T> json(Class<T> type) {
    ObjectMapper mapper = new ObjectMapper();
    ObjectReader reader = mapper.readerFor(type);
    ObjectWriter writer = mapper.writerFor(type);
    Serializer<T> serializer =
        (topic, value) -> {
          try {
            return writer.writeValueAsBytes(value);
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        };
    Deserializer<T> deserializer =
        (topic, bytes) -> {
          try {
            return reader.readValue(bytes);
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        };
    return Serdes.serdeFrom(serializer, deserializer);
  }

  static Serde<Spent> spent() {
    return Serdes.serdeFrom(
        (topic, s) -> s == null ? null : ByteBuffer.allocate(16).putLong(s.count()).putLong(s.total()).array(),
        (topic, bytes) -> {
          if (bytes == null) return null;
          ByteBuffer from = ByteBuffer.wrap(bytes);
          return new Spent(from.getLong(), from.getLong());
        });
  }

  public static void main(String[] arguments) {
    Map<String, String> given = new HashMap<>();
    for (String argument : arguments) {
      int at = argument.indexOf('=');
      given.put(argument.substring(0, at), argument.substring(at + 1));
    }
    String output = given.get("output");
    Properties settings = new Properties();
    settings.put("application.id", "streams-" + output);
    settings.put("bootstrap.servers", given.get("broker"));
    settings.put("state.dir", given.get("store"));
    settings.put("commit.interval.ms", given.get("interval-ms"));
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", "1");
    settings.put("replication.factor", "1");
    // Each update goes out, as with the others.
    settings.put("statestore.cache.max.bytes", "0");
    // Bigger batches at both ends than by default.
    settings.put("main.consumer.max.poll.records", "5000");
    settings.put("main.consumer.fetch.max.wait.ms", "100");
    settings.put("main.consumer.auto.offset.reset", "earliest");
    settings.put("producer.batch.size", "131072");
    settings.put("producer.buffer.memory", "67108864");
    settings.put("producer.linger.ms", "20");
    // Without these two a killed job waits 45 s for its dead member and 10 s for its open transaction.
    settings.put("group.instance.id", "1");
    settings.put("producer.transaction.timeout.ms", "3000");

    Topology job = new Topology();
    job.addSource("purchases", Serdes.ByteArray().deserializer(), json(Purchase.class).deserializer(), given.get("input"));
    job.addProcessor("risk", Risk::new, "purchases");
    job.addStateStore(
        Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("spent"), Serdes.Integer(), spent()), "risk");
    job.addSink("assessments", output, Serdes.ByteArray().serializer(), json(Assessment.class).serializer(), "risk");

    KafkaStreams streams = new KafkaStreams(job, settings);
    streams.setUncaughtExceptionHandler(
        e -> {
          e.printStackTrace();
          return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.ERROR) System.exit(1);
        });
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
