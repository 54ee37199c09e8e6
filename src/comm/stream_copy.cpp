#include "comm/stream_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "device/cpu/instructions.hpp"
#include "tessera/base/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::comm {
namespace {

#if defined(__x86_64__)

constexpr std::size_t kLine = 64;
constexpr std::size_t kBlock = 4 * kLine;

bool writes_lines() noexcept {
  static const bool has = [] {
    try {
      return device::uses_avx512();
    } catch (const ConfigError&) {  // making a device reports it
      return false;
    }
  }();
  return has;
}

/// `to` is at the start of a cache line, `bytes` a multiple of kBlock.
[[gnu::target("avx512f")]] void stream_blocks(std::byte* to, const std::byte* from,
                                              std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kBlock) {
    const __m512i a = _mm512_loadu_si512(from + at);
    const __m512i b = _mm512_loadu_si512(from + at + kLine);
    const __m512i c = _mm512_loadu_si512(from + at + 2 * kLine);
    const __m512i d = _mm512_loadu_si512(from + at + 3 * kLine);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + kLine), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 2 * kLine), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 3 * kLine), d);
  }
  _mm_sfence();  // the lock that the reader takes does not order such writes
}

/// Bytes before the first line that begins at or after `p`.
std::size_t before_line(const std::byte* p) noexcept {
  return (kLine - reinterpret_cast<std::uintptr_t>(p) % kLine) % kLine;
}

#endif

}  // namespace

void stream_copy(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes == 0) { return; }
#if defined(__x86_64__)
  if (writes_lines()) {
    auto* out = static_cast<std::byte*>(to);
    const auto* in = static_cast<const std::byte*>(from);
    const std::size_t head = std::min(before_line(out), bytes);
    const std::size_t body = (bytes - head) / kBlock * kBlock;
    std::memcpy(out, in, head);
    stream_blocks(out + head, in + head, body);
    std::memcpy(out + head + body, in + head + body, bytes - head - body);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace tessera::comm
