// SPDX-License-Identifier: Apache-2.0
// SHA-256 of FIPS 180-4, https://csrc.nist.gov/pubs/fips/180-4/upd1/final.

#include "runtime.h"

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, int count) { return word >> count | word << (32 - count); }

static void digest_block(uint32_t state[8], const uint8_t block[64]) {
  uint32_t words[64], work[8];
  for (int i = 0; i < 16; i++) {
    const uint8_t *at = block + 4 * i;
    words[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
  }
  for (int i = 16; i < 64; i++) {
    uint32_t low = words[i - 15], high = words[i - 2];
    words[i] = words[i - 16] + (rotate(low, 7) ^ rotate(low, 18) ^ low >> 3) + words[i - 7] +
               (rotate(high, 17) ^ rotate(high, 19) ^ high >> 10);
  }
  memcpy(work, state, sizeof work);
  for (int i = 0; i < 64; i++) {
    uint32_t a = work[0], e = work[4];
    uint32_t choice = (e & work[5]) ^ (~e & work[6]), majority = (a & work[1]) ^ (a & work[2]) ^ (work[1] & work[2]);
    uint32_t first = work[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + constants[i] + words[i];
    uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
    memmove(work + 1, work, 7 * sizeof *work);
    work[4] += first;
    work[0] = first + second;
  }
  for (int i = 0; i < 8; i++) {
    state[i] += work[i];
  }
}

void fdb_sha256(const void *data, size_t size, uint8_t digest[32]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint8_t *at = data;
  size_t left = size;
  for (; left >= 64; at += 64, left -= 64) {
    digest_block(state, at);
  }
  uint8_t rest[128] = {0};
  size_t padded = left < 56 ? 64 : 128;
  memcpy(rest, at, left);
  rest[left] = 0x80;
  for (int i = 0; i < 8; i++) {
    rest[padded - 1 - (size_t)i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
  }
  for (size_t block = 0; block < padded; block += 64) {
    digest_block(state, rest + block);
  }
  for (int i = 0; i < 32; i++) {
    digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
  }
}
