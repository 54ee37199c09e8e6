#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.hpp"

namespace tessera::trace {

/// What a kernel, copy or fill does, as far as its time depends on it.
struct KernelWork {
  std::string name;           ///< with the ways of computing it that have rates of their own
  DType dtype = DType::fp32;  ///< that it multiplies in
  double flops = 0;
  double bytes = 0;  ///< read and written, each array once
  /// That its rate depends on: rows and columns, or the m, n and k of a product.
  std::array<std::int64_t, 3> sizes{};

  friend bool operator==(const KernelWork&, const KernelWork&) = default;
};

/// One entry of a batch of collectives.
struct CollectiveWork {
  std::string name;  ///< "all_gather", ...
  double bytes = 0;  ///< of the whole tensor

  friend bool operator==(const CollectiveWork&, const CollectiveWork&) = default;
};

/// A batch, on one of the rank's communicators.
struct BatchWork {
  std::string label;
  std::size_t group = 0;
  std::vector<CollectiveWork> entries;

  friend bool operator==(const BatchWork&, const BatchWork&) = default;
};

/// One thing that was enqueued.
struct WorkEntry {
  enum class Kind : std::uint8_t {
    kernel,     ///< on `stream`; `index` into kernels()
    batch,      ///< on `stream`; `index` into batches()
    record,     ///< `stream` comes to mark `index`
    wait,       ///< `stream` goes on when mark `index` has been come to
    host_wait,  ///< the enqueuing thread goes on then
    step,       ///< a step ends where `stream`, that of computation, comes here
  };
  Kind kind{};
  int stream = 0;
  std::size_t index = 0;
  int phase = 0;       ///< into phases()
  double seconds = 0;  ///< that a kernel took, where it ran and was timed

  friend bool operator==(const WorkEntry&, const WorkEntry&) = default;
};

/// What one rank enqueues on its streams, in the order in which it does: what the time of a step
/// can be worked out from (profile/step_time.hpp). Plain data, of one thread.
class WorkLog {
 public:
  /// A stream's number. The first is that of computation.
  int add_stream(std::string name);
  /// A communicator's: the ranks of the job, in order, that talk through it.
  std::size_t add_group(std::vector<int> members);

  /// What is logged from now on belongs to this phase ("forward", ...).
  void enter(std::string_view phase);
  void kernel(int stream, KernelWork work, double seconds = 0);
  void batch(int stream, BatchWork work);
  /// A new mark.
  std::size_t record(int stream);
  void wait(int stream, std::size_t mark);
  void host_wait(std::size_t mark);
  void end_step();

  [[nodiscard]] const std::vector<std::string>& streams() const noexcept { return streams_; }
  [[nodiscard]] const std::vector<std::vector<int>>& groups() const noexcept { return groups_; }
  [[nodiscard]] const std::vector<std::string>& phases() const noexcept { return phases_; }
  [[nodiscard]] const std::vector<WorkEntry>& entries() const noexcept { return entries_; }
  [[nodiscard]] const std::vector<KernelWork>& kernels() const noexcept { return kernels_; }
  [[nodiscard]] const std::vector<BatchWork>& batches() const noexcept { return batches_; }
  [[nodiscard]] std::size_t marks() const noexcept { return marks_; }

 private:
  void add(WorkEntry::Kind kind, int stream, std::size_t index, double seconds = 0);

  std::vector<std::string> streams_;
  std::vector<std::vector<int>> groups_;
  std::vector<std::string> phases_{""};
  std::vector<WorkEntry> entries_;
  std::vector<KernelWork> kernels_;
  std::vector<BatchWork> batches_;
  std::size_t marks_ = 0;
  int phase_ = 0;
};

}  // namespace tessera::trace
