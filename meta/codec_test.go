package meta

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/varvelog/varve/integration/fuzztest"
	"github.com/varvelog/varve/meta/topic"
)

var (
	idA = topic.ID{0xaa, 1}
	idB = topic.ID{0xbb, 2}
)

// everyChange has one of each change, with every field set.
var everyChange = []Change{
	SetClusterID{ClusterID: "abc"},
	RegisterBroker{ID: 1, Incarnation: idA, Host: "h", Port: 9092, Rack: "r", Fenced: true},
	ChangeBroker{ID: 1, Epoch: 300, Fenced: true, ShuttingDown: true},
	UnregisterBroker{ID: 2, Epoch: 7},
	CreateTopic{Name: "t", ID: idB, Partitions: []Partition{
		{Leader: 1, LeaderEpoch: 2, PartitionEpoch: 3, Recovering: true, Replicas: []int32{1, 2}, ISR: []int32{1}, ELR: []int32{2}},
		{Leader: NoLeader, Replicas: []int32{1, 2}, LastKnownELR: []int32{1}},
	}, Configs: map[string]string{"b": "2", "a": "1"}},
	DeleteTopic{ID: idB},
	ConfirmDeleted{ID: idB, Broker: -1, Tier: true},
	AddPartitions{ID: idB, First: 2, Partitions: []Partition{{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}}},
	ChangePartitions{ID: idB, Changes: []PartitionChange{
		{Index: 1, Set: SetLeader | SetISR, Leader: 2, ISR: []int32{2}},
		{Index: 0, Set: partitionFieldsEnd - 1, Leader: -1, Recovering: true, Replicas: []int32{3}, ISR: []int32{4}, ELR: []int32{5}, LastKnownELR: []int32{6}, AddingReplicas: []int32{7}, RemovingReplicas: []int32{8}},
	}},
	SetConfigs{Kind: BrokerConfig, Name: "1", Set: map[string]string{"k": "v"}, Remove: []string{"x", "y"}},
	TakeProducerIDs{Broker: 1, Next: 1000},
	DescribeBroker{ID: 1, Directory: idA, RaftAddress: "h:1", WantVote: true, Features: map[string]FeatureRange{"f": {Min: 1, Max: 2}}},
	SetFeature{Name: "f", Level: 2},
	SetEndpoints{ID: 1, Endpoints: []Endpoint{{Name: "IN", Host: "h", Port: 1, Protocol: SSL}, {Name: "OUT", Host: "g", Port: 2}}},
	SetQuotas{Entity: QuotaEntity{User: QuotaName{NamedQuota, "u"}, ClientID: QuotaName{Kind: DefaultQuota}}, Set: []QuotaValue{{"k", 1.5}}, Remove: []string{"x"}},
}

// golden is everyChange as a command with base 5, change by change.
var golden = []string{
	"01 05 0f",        // version, base, changes
	"01 04 03 616263", // SetClusterID
	"02 19 02 aa01" + zeros14 + "01 68 888e01 0172 01", // RegisterBroker
	"03 05 02 d804 01 01",                              // ChangeBroker
	"04 02 04 0e",                                      // UnregisterBroker
	"05 35 01 74 bb02" + zeros14 + // CreateTopic: name, id
		"04 020204 0102 0104 00 02" + "02 04 06 01 00 01 02 03" + "01 00 00 00 00 03 03 01" +
		"02 0161 0131 0162 0132",
	"06 10 bb02" + zeros14,
	"07 12 bb02" + zeros14 + "01 01",
	"08 1e bb02" + zeros14 + "04 02 0102 00 01 02 00 00 00 00 00 01 01",
	"09 27 bb02" + zeros14 + "02 02 09 04 0104 00 ff01 01 01 0106 0108 010a 010c 010e 0110",
	"0a 0d 02 0131 01 016b 0176 02 0178 0179",
	"0b 03 02 d00f",
	"0c 1b 02 aa01" + zeros14 + "03 683a31 01 01 0166 02 04", // DescribeBroker
	"0d 03 0166 04", // SetFeature
	"0e 11 02 02 02494e 0168 02 02 034f5554 0167 04 00",    // SetEndpoints
	"0f 13 01 0175 02 00 01 016b 3ff8000000000000 01 0178", // SetQuotas: names, values, keys to remove
}

const zeros14 = "0000000000000000000000000000"

func TestCommandEncodingIsGolden(t *testing.T) {
	c := Command{Base: 5, Changes: everyChange}
	got := c.Encode()
	want := strings.ReplaceAll(strings.Join(golden, ""), " ", "")
	if h := hex.EncodeToString(got[:len(got)-4]); h != want {
		t.Errorf("encoded\n got %s\nwant %s", h, want)
	}
	if sum := hex.EncodeToString(got[len(got)-4:]); sum != goldenSum {
		t.Errorf("checksum %s, want %s", sum, goldenSum)
	}
	back, err := DecodeCommand(got)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, c) {
		t.Errorf("decoded\n got %+v\nwant %+v", back, c)
	}
}

func TestEveryChangeIsInTheGolden(t *testing.T) {
	seen := make(map[changeTag]bool)
	for _, c := range everyChange {
		seen[c.tag()] = true
	}
	for tag := tagSetClusterID; tag <= tagSetQuotas; tag++ {
		if !seen[tag] {
			t.Errorf("change %d is missing", tag)
		}
	}
}

func TestDamagedCommandIsCorrupt(t *testing.T) {
	c := Command{Base: 5, Changes: everyChange}
	whole := c.Encode()
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			if _, err := DecodeCommand(b); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			}
		}
	}
	for n := range whole {
		if _, err := DecodeCommand(whole[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestLaterVersionsAreRefused(t *testing.T) {
	var future encoder
	future.u8(2)
	if _, err := DecodeCommand(sum(future.b)); !errors.Is(err, ErrVersion) {
		t.Errorf("command version 2: %v", err)
	}
	unknown := encoder{b: []byte{1, 0, 1, 200, 0}}
	if _, err := DecodeCommand(sum(unknown.b)); !errors.Is(err, ErrVersion) {
		t.Errorf("change 200: %v", err)
	}
	b := newImage().EncodeSnapshot()
	b[len(snapshotMagic)] = 3
	if _, err := DecodeSnapshot(b); !errors.Is(err, ErrVersion) {
		t.Errorf("snapshot version 3: %v", err)
	}
	b = newImage().EncodeSnapshot()
	b[len(snapshotMagic)] = snapshotSections
	if _, err := DecodeSnapshot(sum(append(b[:len(b)-4:len(b)-4], 200, 1, 0))); !errors.Is(err, ErrVersion) {
		t.Errorf("snapshot section 200: %v", err)
	}
}

// TestFieldsInOneByteStillRead reads a change of a partition as it was written
// before reassignments made the fields too many for one byte.
func TestFieldsInOneByteStillRead(t *testing.T) {
	old, err := hex.DecodeString(strings.ReplaceAll("01 05 01 09 1d bb02"+zeros14+"01 00 3f 01 01 0106 0108 010a 010c", " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeCommand(sum(old))
	want := Command{Base: 5, Changes: []Change{ChangePartitions{ID: idB, Changes: []PartitionChange{{
		Set: SetLeader | SetRecovering | SetReplicas | SetISR | SetELR | SetLastKnownELR, Leader: -1, Recovering: true,
		Replicas: []int32{3}, ISR: []int32{4}, ELR: []int32{5}, LastKnownELR: []int32{6},
	}}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if again := want.Encode(); !bytes.Equal(again, sum(old)) {
		t.Errorf("such a change is now written as %x", again)
	}
}

// TestSnapshotSections also holds that below their level a snapshot stays one
// that the release before can read.
func TestSnapshotSections(t *testing.T) {
	img := fullImage(t)
	if v := img.EncodeSnapshot()[len(snapshotMagic)]; v != snapshotVersion {
		t.Errorf("version %d with nothing for a section", v)
	}
	img, err := img.Apply(Command{Base: img.Index, Changes: []Change{SetFeature{Name: VersionFeature, Level: levelQuotas}, RegisterBroker{ID: 3, Host: "h", Fenced: true},
		DescribeBroker{ID: 3, Directory: idA, RaftAddress: "h:1", WantVote: true, Features: supportedFeatures()}, ChangePartitions{ID: idB, Changes: []PartitionChange{
			{Index: 1, Set: SetReplicas | SetAddingReplicas | SetRemovingReplicas, Replicas: []int32{1, 2, 3}, AddingReplicas: []int32{3}, RemovingReplicas: []int32{1}},
			{Index: 0, Set: SetLeader | SetRecovering, Leader: 2, Recovering: true},
		}}, everyChange[len(everyChange)-1], SetQuotas{Entity: QuotaEntity{IP: QuotaName{NamedQuota, "::1"}}, Set: []QuotaValue{{ConnectionCreationRate, 3}}}}}, img.Index+1)
	if err != nil {
		t.Fatal(err)
	}
	b := img.EncodeSnapshot()
	back, err := DecodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	if b[len(snapshotMagic)] != snapshotSections || !bytes.Equal(back.EncodeSnapshot(), b) || !reflect.DeepEqual(back.Topic("t"), img.Topic("t")) || !reflect.DeepEqual(back.Brokers, img.Brokers) || back.FeaturesEpoch() != img.FeaturesEpoch() || back.level() != levelQuotas || !reflect.DeepEqual(back.Quotas(), img.Quotas()) || len(img.Quotas()) != 2 || back.Topic("t").Partitions[0].UncleanEpoch != 3 {
		t.Errorf("restored %+v", back.Topic("t"))
	}
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 4
		if _, err := DecodeSnapshot(damaged); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("byte %d damaged: %v", i, err)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range everyChange {
		one := Command{Base: 1, Changes: []Change{c}}
		b := one.Encode()
		f.Add(b[:len(b)-4])
	}
	// The shortest forms of what takes most memory.
	for _, c := range []Change{
		ChangePartitions{ID: idA, Changes: make([]PartitionChange, 5000)},
		SetConfigs{Kind: BrokerConfig, Remove: make([]string, 5000)},
		AddPartitions{ID: idA, Partitions: make([]Partition, 5000)},
	} {
		one := Command{Base: 1, Changes: []Change{c}}
		b := one.Encode()
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum would keep the fuzzer out of what is behind it.
		b = sum(b)
		var c Command
		var err error
		fuzztest.Within(t, stateFactor*len(b)+fuzztest.Floor, func() { c, err = DecodeCommand(b) })
		if err != nil {
			return
		}
		again, err := DecodeCommand(c.Encode())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("decodes, encodes and decodes to something else: %v\n%+v\n%+v", err, c, again)
		}
		// Whatever it says, applying it must not panic, and must not change
		// the image it is applied to.
		img := fullImage(t)
		before := img.EncodeSnapshot()
		c.Base = img.Index
		if _, err := img.Apply(c, img.Index+1); err != nil && !errors.Is(err, ErrState) {
			t.Fatal(err)
		}
		if !bytes.Equal(before, img.EncodeSnapshot()) {
			t.Fatal("applying a command changed the image it was applied to")
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	b := fullImage(f).EncodeSnapshot()
	f.Add(b[:len(b)-4])
	b = newImage().EncodeSnapshot()
	f.Add(b[:len(b)-4])
	moving := fullImage(f)
	_, p := moving.PartitionByID(idB, 1)
	p.AddingReplicas, p.RemovingReplicas, p.UncleanEpoch = []int32{2}, []int32{1}, 4
	b = moving.EncodeSnapshot()
	f.Add(b[:len(b)-4])
	// The shortest forms of what takes most memory.
	img := newImage()
	img.topics.put(&Topic{Name: "t", ID: idA, Partitions: make([]Partition, 5000)})
	img.Brokers = make(map[int32]Broker)
	for i := range int32(2000) {
		img.Brokers[i] = Broker{ID: i}
	}
	b = img.EncodeSnapshot()
	f.Add(b[:len(b)-4])
	img = newImage()
	img.groupConf = make(map[string]map[string]string)
	for i := range int32(2000) {
		img.groupConf[strconv.Itoa(int(i))] = map[string]string{"": ""}
	}
	b = img.EncodeSnapshot()
	f.Add(b[:len(b)-4])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = sum(b)
		var img *Image
		var err error
		fuzztest.Within(t, stateFactor*len(b)+fuzztest.Floor, func() { img, err = DecodeSnapshot(b) })
		if err != nil {
			return
		}
		again := img.EncodeSnapshot()
		if len(again) > len(b) {
			t.Fatalf("%d bytes of snapshot became %d", len(b), len(again))
		}
		back, err := DecodeSnapshot(again)
		if err != nil || !bytes.Equal(back.EncodeSnapshot(), again) {
			t.Fatal("a snapshot does not survive a round trip", err)
		}
	})
}

// fullImage has something of everything.
func fullImage(t testing.TB) *Image {
	img := newImage()
	for i, c := range [][]Change{
		{SetClusterID{ClusterID: "abc"}},
		{RegisterBroker{ID: 1, Incarnation: idA, Host: "h", Port: 1, Rack: "r"}, RegisterBroker{ID: 2, Host: "i"}},
		{
			CreateTopic{Name: "t", ID: idB, Partitions: []Partition{
				{Leader: 1, LeaderEpoch: 2, PartitionEpoch: 3, Replicas: []int32{1, 2}, ISR: []int32{1}, ELR: []int32{2}},
				{Leader: NoLeader, Recovering: true, Replicas: []int32{1, 2}, LastKnownELR: []int32{1}},
			}, Configs: map[string]string{"b": "2", "a": "1"}},
			CreateTopic{Name: "gone", ID: idA, Partitions: []Partition{{Leader: 2, Replicas: []int32{2}, ISR: []int32{2}}}, Configs: map[string]string{remoteStorageEnable: "true"}},
		},
		{DeleteTopic{ID: idA}},
		{
			SetConfigs{Kind: BrokerConfig, Set: map[string]string{"k": "v"}},
			SetConfigs{Kind: BrokerConfig, Name: "1", Set: map[string]string{"k": "w"}},
			SetConfigs{Kind: GroupConfig, Name: "g", Set: map[string]string{"x": "y"}},
			TakeProducerIDs{Broker: 1, Next: 1000},
		},
	} {
		next, err := img.Apply(Command{Base: img.Index, Changes: c}, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		img = next
	}
	return img
}

func TestSnapshotRestoresTheImage(t *testing.T) {
	img := fullImage(t)
	b := img.EncodeSnapshot()
	back, err := DecodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.EncodeSnapshot(), b) {
		t.Error("a restored image makes another snapshot")
	}
	if back.Index != img.Index || back.PartitionCount() != 2 || back.TopicCount() != 1 || len(back.DeletedTopics()) != 1 ||
		!back.DeletedTopics()[0].Tier || back.GroupConfigs("g")["x"] != "y" || back.BrokerConfigs(1)["k"] != "w" ||
		back.BrokerDefaultConfigs()["k"] != "v" || back.NextProducerID != 1000 || !reflect.DeepEqual(back.Brokers, img.Brokers) ||
		!reflect.DeepEqual(back.Topic("t"), img.Topic("t")) {
		t.Errorf("restored %+v", back)
	}
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 4
		if _, err := DecodeSnapshot(damaged); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("byte %d damaged: %v", i, err)
		}
	}
}

// sum appends the checksum that a decoder expects.
func sum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, castagnoli))
}

const goldenSum = "99625284"
