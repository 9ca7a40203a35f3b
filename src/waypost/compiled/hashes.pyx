# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""SHA-512 (FIPS 180-4) of four texts at once, one in each lane of the processor's wide registers. `hashlib` gives the same, one
by one; which of them pays is known to `trust/hashing.py`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__GNUC__)
    #define WAYPOST_HAS_LANES 1
    typedef uint64_t lanes __attribute__((vector_size(32)));
    #else   /* the module says so when it is loaded */
    #define WAYPOST_HAS_LANES 0
    typedef uint64_t lanes;
    #endif

    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
    #define WAYPOST_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define WAYPOST_CLONES
    #endif

    static const uint64_t CONSTANTS[80] = {
        0x428a2f98d728ae22ULL, 0x7137449123ef65cdULL, 0xb5c0fbcfec4d3b2fULL, 0xe9b5dba58189dbbcULL,
        0x3956c25bf348b538ULL, 0x59f111f1b605d019ULL, 0x923f82a4af194f9bULL, 0xab1c5ed5da6d8118ULL,
        0xd807aa98a3030242ULL, 0x12835b0145706fbeULL, 0x243185be4ee4b28cULL, 0x550c7dc3d5ffb4e2ULL,
        0x72be5d74f27b896fULL, 0x80deb1fe3b1696b1ULL, 0x9bdc06a725c71235ULL, 0xc19bf174cf692694ULL,
        0xe49b69c19ef14ad2ULL, 0xefbe4786384f25e3ULL, 0x0fc19dc68b8cd5b5ULL, 0x240ca1cc77ac9c65ULL,
        0x2de92c6f592b0275ULL, 0x4a7484aa6ea6e483ULL, 0x5cb0a9dcbd41fbd4ULL, 0x76f988da831153b5ULL,
        0x983e5152ee66dfabULL, 0xa831c66d2db43210ULL, 0xb00327c898fb213fULL, 0xbf597fc7beef0ee4ULL,
        0xc6e00bf33da88fc2ULL, 0xd5a79147930aa725ULL, 0x06ca6351e003826fULL, 0x142929670a0e6e70ULL,
        0x27b70a8546d22ffcULL, 0x2e1b21385c26c926ULL, 0x4d2c6dfc5ac42aedULL, 0x53380d139d95b3dfULL,
        0x650a73548baf63deULL, 0x766a0abb3c77b2a8ULL, 0x81c2c92e47edaee6ULL, 0x92722c851482353bULL,
        0xa2bfe8a14cf10364ULL, 0xa81a664bbc423001ULL, 0xc24b8b70d0f89791ULL, 0xc76c51a30654be30ULL,
        0xd192e819d6ef5218ULL, 0xd69906245565a910ULL, 0xf40e35855771202aULL, 0x106aa07032bbd1b8ULL,
        0x19a4c116b8d2d0c8ULL, 0x1e376c085141ab53ULL, 0x2748774cdf8eeb99ULL, 0x34b0bcb5e19b48a8ULL,
        0x391c0cb3c5c95a63ULL, 0x4ed8aa4ae3418acbULL, 0x5b9cca4f7763e373ULL, 0x682e6ff3d6b2b8a3ULL,
        0x748f82ee5defb2fcULL, 0x78a5636f43172f60ULL, 0x84c87814a1f0ab72ULL, 0x8cc702081a6439ecULL,
        0x90befffa23631e28ULL, 0xa4506cebde82bde9ULL, 0xbef9a3f7b2c67915ULL, 0xc67178f2e372532bULL,
        0xca273eceea26619cULL, 0xd186b8c721c0c207ULL, 0xeada7dd6cde0eb1eULL, 0xf57d4f7fee6ed178ULL,
        0x06f067aa72176fbaULL, 0x0a637dc5a2c898a6ULL, 0x113f9804bef90daeULL, 0x1b710b35131c471bULL,
        0x28db77f523047d84ULL, 0x32caab7b40c72493ULL, 0x3c9ebe0a15c9bebcULL, 0x431d67c49c100d4cULL,
        0x4cc5d4becb3e42b6ULL, 0x597f299cfc657e2aULL, 0x5fcb6fab3ad6faecULL, 0x6c44198c4a475817ULL,
    };
    static const uint64_t BEGINNING[8] = {
        0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
        0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL,
    };

    #define ROTATED(x, by) ((x) >> (by) | (x) << (64 - (by)))
    #define BIG_0(x) (ROTATED(x, 28) ^ ROTATED(x, 34) ^ ROTATED(x, 39))
    #define BIG_1(x) (ROTATED(x, 14) ^ ROTATED(x, 18) ^ ROTATED(x, 41))
    #define SMALL_0(x) (ROTATED(x, 1) ^ ROTATED(x, 8) ^ (x) >> 7)
    #define SMALL_1(x) (ROTATED(x, 19) ^ ROTATED(x, 61) ^ (x) >> 6)
    #define ROUND(a, b, c, d, e, f, g, h, at) do { \\
        h += BIG_1(e) + (g ^ (e & (f ^ g))) + CONSTANTS[from + (at)] + w[at]; \\
        d += h; \\
        h += BIG_0(a) + ((a & b) | (c & (a | b))); \\
    } while (0)

    static uint64_t word_of(const uint8_t *block, int at)
    {
        uint64_t word;
        memcpy(&word, block + 8 * at, 8);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    /* One block of each lane. */
    WAYPOST_CLONES
    static void take_blocks(lanes *state, const uint8_t *const *blocks)
    {
        lanes w[16];
        lanes a = state[0], b = state[1], c = state[2], d = state[3];
        lanes e = state[4], f = state[5], g = state[6], h = state[7];
        for (int at = 0; at < 16; at++)
            w[at] = (lanes){word_of(blocks[0], at), word_of(blocks[1], at), word_of(blocks[2], at), word_of(blocks[3], at)};
        for (int from = 0; from < 80; from += 16) {
            if (from)
                for (int at = 0; at < 16; at++)
                    w[at] += SMALL_1(w[(at + 14) & 15]) + w[(at + 9) & 15] + SMALL_0(w[(at + 1) & 15]);
            for (int at = 0; at < 16; at += 8) {
                ROUND(a, b, c, d, e, f, g, h, at); ROUND(h, a, b, c, d, e, f, g, at + 1);
                ROUND(g, h, a, b, c, d, e, f, at + 2); ROUND(f, g, h, a, b, c, d, e, at + 3);
                ROUND(e, f, g, h, a, b, c, d, at + 4); ROUND(d, e, f, g, h, a, b, c, at + 5);
                ROUND(c, d, e, f, g, h, a, b, at + 6); ROUND(b, c, d, e, f, g, h, a, at + 7);
            }
        }
        state[0] += a; state[1] += b; state[2] += c; state[3] += d;
        state[4] += e; state[5] += f; state[6] += g; state[7] += h;
    }

    typedef struct { const uint8_t *head, *text; size_t head_size, size; } written;

    static size_t blocks_of(const written *one) { return (one->head_size + one->size + 17 + 127) / 128; }

    /* Where the block of that number is: in the text itself, or put together here with what stands around it. */
    static const uint8_t *block_of(const written *one, size_t number, uint8_t *room)
    {
        size_t from = 128 * number, total = one->head_size + one->size, count = blocks_of(one);
        if (from >= one->head_size && from + 128 <= total) return one->text + (from - one->head_size);
        memset(room, 0, 128);
        if (number >= count) return room;
        for (size_t at = 0; at < 128 && from + at < one->head_size; at++) room[at] = one->head[from + at];
        size_t begins = from < one->head_size ? one->head_size - from : 0;
        if (begins < 128 && from + begins < total) {
            size_t left = total - (from + begins), fits = 128 - begins;
            memcpy(room + begins, one->text + (from + begins - one->head_size), left < fits ? left : fits);
        }
        if (total >= from && total < from + 128) room[total - from] = 0x80;
        if (number == count - 1)
            for (int at = 0; at < 8; at++) room[127 - at] = (uint8_t)((uint64_t)total * 8 >> 8 * at);
        return room;
    }

    static void hash_four(uint8_t *const *out, const written *four)
    {
        lanes state[8];
        uint8_t room[4][128];
        const uint8_t *blocks[4];
        size_t most = 0;
        for (int at = 0; at < 8; at++)
            state[at] = (lanes){BEGINNING[at], BEGINNING[at], BEGINNING[at], BEGINNING[at]};
        for (int lane = 0; lane < 4; lane++)
            if (blocks_of(four + lane) > most) most = blocks_of(four + lane);
        for (size_t number = 0; number < most; number++) {
            for (int lane = 0; lane < 4; lane++) blocks[lane] = block_of(four + lane, number, room[lane]);
            take_blocks(state, blocks);
            for (int lane = 0; lane < 4; lane++)
                if (number == blocks_of(four + lane) - 1)
                    for (int at = 0; at < 64; at++)
                        out[lane][at] = (uint8_t)(state[at / 8][lane] >> (56 - 8 * (at % 8)));
        }
    }
    """
    ctypedef struct written:
        const uint8_t *head
        const uint8_t *text
        size_t head_size
        size_t size
    const int WAYPOST_HAS_LANES
    void hash_four(uint8_t *const *out, const written *four) nogil

if not WAYPOST_HAS_LANES:
    raise ImportError("this compiler has no vectors")


def hash_each(list heads not None, list texts not None):
    """The hash of each head with its text behind it; 1 to 4 of them."""
    cdef Py_ssize_t n = len(texts), at
    cdef written four[4]
    cdef uint8_t *out[4]
    cdef uint8_t spare[64]
    if n != len(heads) or not 1 <= n <= 4:
        raise ValueError("as many heads as texts, 1 to 4")
    found = [PyBytes_FromStringAndSize(NULL, 64) for _ in range(n)]
    for at in range(4):
        head, text = (heads[at], texts[at]) if at < n else (b"", b"")
        if type(head) is not bytes or type(text) is not bytes:
            raise TypeError("heads and texts are bytes")
        four[at].head, four[at].head_size = <const uint8_t *> PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head)
        four[at].text, four[at].size = <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        out[at] = <uint8_t *> PyBytes_AS_STRING(found[at]) if at < n else spare
    with nogil:
        hash_four(out, four)
    return found
