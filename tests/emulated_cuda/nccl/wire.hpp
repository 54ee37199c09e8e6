#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace emulated_nccl {

/// One end of a connection between processes of this machine. Every wait polls `goes_on`.
class Line {
 public:
  Line() = default;
  explicit Line(int handle) noexcept : handle_{handle} {}
  Line(Line&& other) noexcept : handle_{std::exchange(other.handle_, -1)} {}
  Line& operator=(Line other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Line();

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ >= 0; }
  [[nodiscard]] int handle() const noexcept { return handle_; }

  using GoesOn = std::function<bool()>;
  enum class End : std::uint8_t { done, lost, stopped };
  [[nodiscard]] End send(const void* data, std::size_t bytes, const GoesOn& goes_on);
  [[nodiscard]] End receive(void* data, std::size_t bytes, const GoesOn& goes_on);

 private:
  int handle_ = -1;
};

/// Listens under a name that a unique id contains.
[[nodiscard]] Line listen_as(const std::string& name);
[[nodiscard]] Line accept_one(const Line& listener);
[[nodiscard]] Line connect_to(const std::string& name);

/// A rank's introduction when it connects.
struct Hello {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  char host[64] = {};
  std::int32_t device = 0;
  std::int32_t job_rank = 0;
};

/// Values sent instead of the number of calls in a group: the rank splits the communicator, or
/// connects to its peers before its first group.
inline constexpr std::uint64_t kSplits = UINT64_MAX;
inline constexpr std::uint64_t kConnects = UINT64_MAX - 1;
/// Sent instead of that number, too: the rank registers a window with the communicator.
inline constexpr std::uint64_t kRegisters = UINT64_MAX - 2;

/// A rank's description of its window. The double requires equal windows on all ranks.
struct WindowAsk {
  std::uint64_t bytes = 0;
  std::int64_t flags = 0;
  bool operator==(const WindowAsk&) const = default;
};

/// A rank's arguments of a split, and the answer: the name to connect to, and the new rank.
struct SplitAsk {
  std::int32_t color = 0;
  std::int32_t key = 0;
};
struct SplitAnswer {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;  ///< 0: the rank is in no group
  char name[100] = {};
};

enum class Kind : std::int32_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  reduce,
  send,
  receive,
};

/// One call of a group, without addresses.
struct Call {
  Kind kind = Kind::all_gather;
  std::int32_t type = 0;  ///< ncclDataType_t
  std::int32_t op = 0;    ///< ncclRedOp_t
  std::int32_t peer = 0;  ///< root, or the other end
  std::uint64_t count = 0;
  std::uint64_t registered = 0;  ///< 1: the rank's buffers are registered
};

[[nodiscard]] std::size_t size_of(std::int32_t type);
/// Elements that a rank sends and receives in `call`.
[[nodiscard]] std::uint64_t sent(const Call& call, int rank, int ranks);
[[nodiscard]] std::uint64_t given(const Call& call, int rank, int ranks);

}  // namespace emulated_nccl
