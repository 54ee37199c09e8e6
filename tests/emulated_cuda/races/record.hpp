#pragma once

#include <cstdint>

namespace emulated_cuda::races {

/// How an access takes part in races. Two atomic accesses never race. A copy in flight races with
/// every access.
enum class Kind : std::uint8_t { plain, atomic, in_flight };

/// A thread's access to some bytes, in 64 bits. An empty record has the time 0.
class Record {
 public:
  static constexpr unsigned kTimeBits = 28;
  static constexpr unsigned kThreadBits = 10;
  static constexpr unsigned kCodeBits = 24;
  static constexpr std::uint64_t kTimes = std::uint64_t{1} << kTimeBits;

  Record() = default;
  /// `code` is a number of kCodeBits for the place in the program (places.hpp).
  Record(std::uint64_t time, unsigned thread, Kind kind, std::uint32_t code)
      : bits_{time << (64 - kTimeBits) | std::uint64_t{thread} << (2 + kCodeBits) |
              std::uint64_t{static_cast<std::uint8_t>(kind)} << kCodeBits | code} {}

  [[nodiscard]] std::uint64_t time() const noexcept { return bits_ >> (64 - kTimeBits); }
  [[nodiscard]] unsigned thread() const noexcept {
    return static_cast<unsigned>(bits_ >> (2 + kCodeBits)) & ((1U << kThreadBits) - 1);
  }
  [[nodiscard]] unsigned warp() const noexcept { return thread() / 32; }
  [[nodiscard]] Kind kind() const noexcept { return static_cast<Kind>(bits_ >> kCodeBits & 3U); }
  [[nodiscard]] std::uint32_t code() const noexcept {
    return static_cast<std::uint32_t>(bits_) & ((1U << kCodeBits) - 1);
  }
  /// Whether both are of one thread and one time.
  [[nodiscard]] bool is_beside(Record other) const noexcept {
    return (bits_ ^ other.bits_) >> (2 + kCodeBits) == 0;
  }

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace emulated_cuda::races
