package inbox

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/seed"
)

// MySQL has no CRC32C. What stands for it must say the same, whatever a batch's size is.
func TestIsCodewordAgreesWithCRC32C(t *testing.T) {
	random := seed.Random(t)
	r := newRig(t, everystore.URL(t, "mysql"))
	if r.isMariaDB() {
		t.Skip("MariaDB has CRC32C, or nothing to compute it with")
	}
	made := func(size int) []byte {
		raw := make([]byte, size)
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		return raw
	}
	sound := func(raw []byte) (sound bool) {
		t.Helper()
		conn, err := r.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "CALL weir_is_codeword(?, @sound)", raw); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRowContext(t.Context(), "SELECT @sound").Scan(&sound); err != nil {
			t.Fatal(err)
		}
		return sound
	}
	sizes := []int{61, 21 + 118, 21 + 119, 21 + 248, 21 + 249, 3 << 20}
	for range 100 {
		sizes = append(sizes, 61+random.IntN(1<<(3+random.IntN(15))))
	}
	for _, size := range sizes {
		raw := made(size)
		if !sound(raw) {
			t.Errorf("a batch of %d bytes is taken for changed", size)
		}
		at := 17 + random.IntN(size-17)
		raw[at] ^= byte(1 + random.IntN(255))
		if sound(raw) {
			t.Errorf("a batch of %d bytes with a change at byte %d is taken for sound", size, at)
		}
	}
	raw := made(300)
	for bit := 8 * 17; bit < 8*len(raw); bit++ {
		raw[bit/8] ^= 1 << (bit % 8)
		if sound(raw) {
			t.Errorf("of a batch of %d bytes the change of bit %d goes unseen", len(raw), bit)
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
}
