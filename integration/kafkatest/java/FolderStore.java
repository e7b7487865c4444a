import java.io.IOException;
import java.io.InputStream;
import java.io.ByteArrayInputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** FolderStore is the smallest remote storage Kafka can tier to: a folder with one file for each part of a segment. */
public class FolderStore implements RemoteStorageManager {
    private Path folder;

    @Override
    public void configure(Map<String, ?> settings) {
        folder = Path.of(settings.get("folder").toString());
    }

    private Path file(RemoteLogSegmentMetadata segment, String part) {
        return folder.resolve(segment.remoteLogSegmentId().id() + "." + part);
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        try {
            Files.createDirectories(folder);
            Files.copy(data.logSegment(), file(segment, "LOG"));
            Files.copy(data.offsetIndex(), file(segment, IndexType.OFFSET.name()));
            Files.copy(data.timeIndex(), file(segment, IndexType.TIMESTAMP.name()));
            if (data.transactionIndex().isPresent()) {
                Files.copy(data.transactionIndex().get(), file(segment, IndexType.TRANSACTION.name()));
            }
            Files.copy(data.producerSnapshotIndex(), file(segment, IndexType.PRODUCER_SNAPSHOT.name()));
            ByteBuffer epochs = data.leaderEpochIndex();
            byte[] bytes = new byte[epochs.remaining()];
            epochs.get(bytes);
            Files.write(file(segment, IndexType.LEADER_EPOCH.name()), bytes);
            return Optional.empty();
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int from) throws RemoteStorageException {
        return fetchLogSegment(segment, from, Integer.MAX_VALUE - 1);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int from, int to) throws RemoteStorageException {
        byte[] all = read(segment, "LOG");
        return new ByteArrayInputStream(Arrays.copyOfRange(all, Math.min(from, all.length), Math.min(to + 1, all.length)));
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        return new ByteArrayInputStream(read(segment, type.name()));
    }

    private byte[] read(RemoteLogSegmentMetadata segment, String part) throws RemoteStorageException {
        try {
            return Files.readAllBytes(file(segment, part));
        } catch (NoSuchFileException e) {
            throw new RemoteResourceNotFoundException(e);
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try {
            for (IndexType type : IndexType.values()) {
                Files.deleteIfExists(file(segment, type.name()));
            }
            Files.deleteIfExists(file(segment, "LOG"));
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    @Override
    public void close() {}
}
